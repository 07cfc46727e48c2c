package redislock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// RunOnce runs the job, unless it is running elsewhere or was begun less than atLeast ago. It does not wait. ran tells whether it has
// run the job; err is the job's, or that of the lock.
//
// The lock ends atMost after it was taken, if its owner has died or not: choose more than the job ever takes. The job's context ends
// then, too, unless the job calls Extend. atLeast counts from when the lock was taken, by the server's clock, and is at most atMost.
func (r *RedisLock) RunOnce(
	ctx context.Context, name string, atMost, atLeast time.Duration, job func(context.Context, *Mutex) error, options ...Option,
) (ran bool, err error) {
	if atLeast < 0 || atLeast > atMost {
		return false, errors.New("redislock: atLeast must be from 0 to atMost")
	}
	if atLeast > 0 {
		if err := r.client.AtLeast(ctx, name); err != nil {
			return false, err
		}
	}
	mutex := r.NewMutex(name, append(slices.Clip(options), WithExpiry(atMost))...)
	if err := mutex.TryLockContext(ctx); errors.Is(err, &ErrTaken{}) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer func() {
		if _, failed := mutex.unlock(context.WithoutCancel(ctx), atLeast); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	within, cancel := mutex.current().Context(ctx)
	defer cancel()
	return true, job(within, mutex)
}
