package redislock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exec runs one command on the server, in the same step in which the server checks that the lock is held: a late owner changes nothing.
// The reply is the command's own. If the lock is not held its error is [ErrNotHeld]. Of a [MultiMutex], the first name guards.
//
//	err := mutex.Exec(ctx, "SET", "stock:7", 3).Err()
func (m *Mutex) Exec(ctx context.Context, command string, args ...any) *redis.Cmd {
	value := m.Value()
	guarded := about("LOCK.EXEC", m.Name(), append([]any{value, command}, args...)...)
	guarded.Again = false // The command is the user's.
	cmd := redis.NewCmd(ctx, guarded.Args...)
	if m.locks.chosen() == theFallback {
		cmd.SetErr(notInFallback("a guarded command is"))
		return cmd
	}
	if value == "" {
		cmd.SetErr(ErrNotHeld)
		return cmd
	}
	reply := m.locks.send(ctx, guarded)
	lost := says(reply.Err, "NOTHELD")
	if says(reply.Err, "WRONGTYPE") { // Of the lock, or of the command.
		held, err := m.Check(ctx)
		lost = err == nil && !held
	}
	switch {
	case lost:
		cmd.SetErr(ErrNotHeld)
	case reply.Err != nil:
		cmd.SetErr(m.lacking(ctx, reply.Err))
	case reply.Value == nil:
		cmd.SetErr(redis.Nil)
	default:
		cmd.SetVal(reply.Value)
	}
	return cmd
}

// Check asks the server whether the lock is held now. After Until the answer is no: the server may still have a longer lease. The answer is old when it arrives: guard a write by Exec or by the fence.
func (m *Mutex) Check(ctx context.Context) (bool, error) {
	value := m.Value()
	if value == "" {
		return false, nil
	}
	for _, name := range m.names {
		fence, err := numberIn(m.locks.owned(ctx, about("LOCK.CHECK", name, value))[0])
		if isTaken(err) || err == nil && fence == 0 {
			return false, nil
		}
		if err != nil {
			return false, m.lacking(ctx, &RedisError{Err: err})
		}
	}
	return !m.isOver(time.Now()), nil
}

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
	mutex := r.NewMutex(name, append(slices.Clip(options), WithExpiry(atMost))...)
	if err := mutex.TryLockContext(ctx); errors.Is(err, &ErrTaken{}) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	var later []any
	if atLeast > 0 {
		later = []any{"ATLEAST", atLeast.Milliseconds()}
		if r.chosen() == theFallback {
			_, _ = mutex.UnlockContext(context.WithoutCancel(ctx))
			return false, notInFallback("atLeast is")
		}
	}
	defer func() {
		if _, failed := mutex.unlock(context.WithoutCancel(ctx), later...); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	within, cancel := mutex.whileLeased(ctx)
	defer cancel(nil)
	return true, job(within, mutex)
}

// KeepAlive renews the lock at a third of its expiry, in the background, and returns a context that ends when the lock is lost. Its
// cause is [ErrNotHeld] then. The work is to end with the context. stop ends the renewals and the context. It does not unlock.
//
//	within, stop := mutex.KeepAlive(ctx)
//	defer mutex.Unlock()
//	defer stop()
//	err := work(within)
//
// Nothing else renews a lock: without KeepAlive or [Mutex.Extend] it ends after its expiry.
func (m *Mutex) KeepAlive(ctx context.Context) (within context.Context, stop context.CancelFunc) {
	within, cancel := m.whileLeased(ctx)
	go m.keepRenewing(within, func() { cancel(ErrNotHeld) })
	return within, func() { cancel(nil) }
}

// shortestSpan is the shortest linger that makes renewals more frequent.
const shortestSpan = 300 * time.Millisecond

func (m *Mutex) keepRenewing(ctx context.Context, lose func()) {
	span := m.expiry
	if m.linger != nil {
		// The server has a lock whose connection is lost for the linger only.
		span = min(span, max(*m.linger, shortestSpan))
	}
	value := m.Value()
	pause := min(span, time.Until(m.Until())) / 3 // Some of the lease may be over before KeepAlive begins.
	for {
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		held := m.held()
		renewed := false
		var err error
		if held.value == value {
			renewed, err = m.renew(ctx, held)
		}
		switch {
		case err != nil:
			pause = min(span/10, tryAgain)
		case renewed:
			pause = span / 3
		default:
			lose()
			return
		}
	}
}

// whileLeased returns a context that ends with the lease, also with one that was extended. A Lock that comes at once after an Unlock has
// another lease.
func (m *Mutex) whileLeased(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	within, cancel := context.WithCancelCause(ctx)
	_, first := m.lease()
	ended := func() bool {
		until, nth := m.lease()
		return nth != first || !time.Now().Before(until)
	}
	if ended() {
		cancel(ErrNotHeld)
		return within, cancel
	}
	go func() {
		for within.Err() == nil && !ended() {
			m.awaitEnd(within)
		}
		cancel(ErrNotHeld)
	}()
	return within, cancel
}
