package redislock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
)

// RunOnce runs the job, unless it is running elsewhere or was begun less than atLeast ago. It does not wait. ran tells whether it has
// run the job; err is the job's, or that of the lock.
//
// The lock ends atMost after it was taken, if its owner has died or not: choose more than the job ever takes. The job's context ends
// then, too, unless the job calls Extend. atLeast counts from when the lock was taken, by the server's clock, and is at most atMost.
// When ctx has ended, RunOnce waits for the release for 2s more, which then goes on by itself.
func (r *RedisLock) RunOnce(
	ctx context.Context, name string, atMost, atLeast time.Duration, job func(context.Context, *Mutex) error, options ...Option,
) (ran bool, err error) {
	if atLeast < 0 || atLeast > atMost {
		return false, errors.New("redislock: atLeast must be from 0 to atMost")
	}
	mutex := r.NewMutex(name, append(slices.Clip(options), WithExpiry(atMost))...)
	mutex.lock.AtLeast = atLeast
	if err := mutex.TryLockContext(ctx); errors.Is(err, &ErrTaken{}) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer func() {
		// The end of ctx does not keep the others waiting. Nor does a server that refuses for now keep the caller after it.
		ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(2*core.Margin, cancel) })()
		if _, failed := mutex.UnlockContext(ending); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	within, cancel := mutex.hold.Load().Context(ctx)
	defer cancel()
	return true, job(within, mutex)
}

// Once returns the result that the key name has, or the one that maker makes. If many ask at the same time, one of them makes it, and
// all others wait in the server's queue and get it. A result that is there costs one request. The lock's key is name and ":once", with
// braces around a name that has no hash tag.
//
// The maker's context ends when the lock is lost. What it has made is then not stored, and only its own caller gets it. An error of
// the maker goes to its own caller, and the next one that waits makes the result. If the result ends soon, see [WithEarly], one caller
// makes the next one while the others get the old one. If that fails, it gets the old one, too.
//
// "Once" is at least once: if a maker dies before its result is stored, another one repeats its work.
//
// The error is an [ErrTaken] if there is no result in time, an [ErrFailed] if ctx has ended, an [ErrModuleMissing] on a server without
// the module (also [WithFallback]), and an [ErrUnsupported] if the module does not know LOCK.ONCE. If the server refuses for good to
// store a result, as without the right to, the result comes with that error.
func (r *RedisLock) Once(
	ctx context.Context, name string, maker func(ctx context.Context) ([]byte, error), options ...OnceOption,
) ([]byte, error) {
	once := r.client.Once(name)
	for _, option := range options {
		option(once)
	}
	return once.Get(ctx, maker)
}

// A OnceOption configures a [RedisLock.Once].
type OnceOption func(*core.Once)

// WithKeep sets how long the result lives, from 1ms on. The default is 60s.
func WithKeep(keep time.Duration) OnceOption { return func(o *core.Once) { o.Keep = keep } }

// WithEarly has the next result be made when the old one lives no longer than this. The default is 10s. At most half of [WithKeep]
// counts. A result without a ttl is never early.
func WithEarly(early time.Duration) OnceOption { return func(o *core.Once) { o.Early = early } }

// WithXFetch takes the place of [WithEarly]: each call draws how early the next result is to be made, as -delta*beta*ln(random). delta
// is how long the result takes to make. A beta above 1 makes it earlier, and one below 1 later.
func WithXFetch(delta time.Duration, beta float64) OnceOption {
	return func(o *core.Once) { o.Delta, o.Beta = delta, beta }
}

// WithTTL sets the ttl of the lock, which is renewed while the maker runs. So it is how long the others wait for a maker that has
// died. The default is 30s, and 3ms or less is an error, as with [WithExpiry].
func WithTTL(ttl time.Duration) OnceOption { return func(o *core.Once) { o.Expiry = ttl } }

// WithWait sets how long to wait for the result of another caller. The default is 5s; 0 does not wait.
func WithWait(wait time.Duration) OnceOption { return func(o *core.Once) { o.Wait = wait } }
