package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
	"github.com/redis/go-redis/v9"
)

// ErrExtendFailed is returned by Extend when the lock is no longer held. An [ErrTaken] is wrapped beside it, which is
// what redsync returns there.
var ErrExtendFailed = errors.New("redislock: failed to extend lock")

// ErrLockAlreadyExpired is returned by Unlock when the lock is no longer held.
var ErrLockAlreadyExpired = errors.New("redislock: failed to unlock, lock was already expired")

// A Mutex is a lock on the server. Every holder has a Mutex of its own: what it remembers is one [Hold]. Extend, Until and
// the others may be called by other goroutines than Lock.
type Mutex struct {
	lock          core.Lock
	tries         int
	delayFunc     DelayFunc
	setNXOnExtend bool
	other         *Mutex // the reader of this writer, or the writer of this reader; itself where there is none

	hold     atomic.Pointer[core.Hold] // the last one, or one of nothing
	retaking sync.Mutex                // an Extend that takes the lock again has it, and an Unlock waits for that
	unlocked *core.Hold                // the last one that an Unlock began with; retaking guards it
}

// Acquire is LockContext, and returns the hold, which has no redsync's names: Renew, Release, Keep and Done. The mutex remembers it,
// too.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	lock := m.lock
	lock.Wait = m.patience()
	return m.remember(lock.Acquire(ctx))
}

// Name returns the name of the mutex, which is the key of the lock. Of several it is the first one, or empty without
// any.
func (m *Mutex) Name() string { return m.lock.Names[0] }

// Value returns the token of the last lock. It is empty until a lock is had (or WithValue is used).
func (m *Mutex) Value() string { return m.hold.Load().Token() }

// Until returns until when the lock is surely held if it is not extended, by this machine's clock. The expiry counts from the sending of
// the request, less the drift and 2ms, and the linger of [WithLinger] from the last sign of life. It is zero until a lock is had. The
// clock stands still while a machine sleeps (on Linux and macOS): after that, rely on Fence, Check or Exec.
func (m *Mutex) Until() time.Time { return m.hold.Load().Until() }

// Fence returns the fence of the last lock: a number larger than that of every lock given before. Send it with every
// write, and let the resource refuse a number smaller than the largest that it has seen. It is 0 until a lock is had.
func (m *Mutex) Fence() int64 { return m.hold.Load().Fence() }

// Lock takes the lock. It waits in the server's queue, for the time that [WithTries] explains, and then returns an [ErrTaken].
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext takes the lock. It waits in the server's queue, for the time that [WithTries] explains or until ctx ends,
// whichever is first. A ctx that ends gives the place in the queue up at once.
func (m *Mutex) LockContext(ctx context.Context) error {
	_, err := m.Acquire(ctx)
	return err
}

// TryLock takes the lock if it can be had at once: nobody holds it and nobody waits for it.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext takes the lock if it can be had at once: nobody holds it and nobody waits for it.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	_, err := m.remember(m.lock.TryAcquire(ctx))
	return err
}

// remember returns what an acquire has returned, and keeps the hold.
func (m *Mutex) remember(hold *Hold, err error) (*Hold, error) {
	if err == nil {
		m.hold.Store(hold)
	}
	return hold, err
}

// live is the hold of a token on either side if it is not over. nil: there is none.
func (m *Mutex) live(token string) *core.Hold {
	for _, side := range []*Mutex{m, m.other} {
		if hold := side.hold.Load(); hold.Token() == token && time.Now().Before(hold.Until()) {
			return hold
		}
	}
	return nil
}

// Unlock releases the lock. It returns false and ErrLockAlreadyExpired when it was no longer held. After another error the server may
// still have the lock: Unlock can be called again. Without an answer it goes on by itself until then, or until Until.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext is [Mutex.Unlock] with a context. While the server refuses for now, it asks again until Until.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	m.retaking.Lock()
	hold := m.hold.Load()
	m.unlocked = hold
	m.retaking.Unlock()
	if live := m.live(hold.Token()); live != nil {
		hold = live // The server has one hold of both sides.
	}
	released, err := hold.Release(ctx)
	if err == nil && !released {
		err = ErrLockAlreadyExpired
	}
	return released, err
}

// Extend sets the expiry anew. It returns false and ErrExtendFailed when the lock was no longer held. An Unlock and another
// Lock meanwhile are not disturbed: the hold that it began with is the one that it extends.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext sets the expiry anew. It returns false and ErrExtendFailed when the lock was no longer held, or when Until has passed.
// While the server refuses for now, it asks again until then.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	hold := m.hold.Load()
	if renewed, err := hold.Renew(ctx); err != nil || renewed {
		return renewed, err
	}
	m.retaking.Lock()
	defer m.retaking.Unlock()
	if m.setNXOnExtend && m.hold.Load() == hold && m.unlocked != hold && hold.Token() != "" {
		lock := m.lock
		lock.Token = func() (string, error) { return hold.Token(), nil }
		if _, err := m.remember(lock.TryAcquire(ctx)); !errors.Is(err, &ErrTaken{}) {
			return err == nil, err
		}
	}
	return false, fmt.Errorf("%w: %w", ErrExtendFailed, &ErrTaken{Nodes: []int{0}})
}

// KeepAlive renews the lock at a third of its expiry, or of its linger, in the background, and returns a context that ends when the
// lock is lost. Its cause is [ErrNotHeld] then. The work is to end with the context. stop ends the renewals and the context. It does
// not unlock.
//
//	within, stop := mutex.KeepAlive(ctx)
//	defer mutex.Unlock()
//	defer stop()
//	err := work(within)
//
// Nothing else renews a lock: without KeepAlive or [Mutex.Extend] it ends after its expiry.
func (m *Mutex) KeepAlive(ctx context.Context) (within context.Context, stop context.CancelFunc) {
	return m.hold.Load().Keep(ctx)
}

// Check asks the server whether the lock is held now. After Until the answer is no: the server may still have a longer lease. The
// answer is old when it arrives: guard a write by Exec or by the fence.
func (m *Mutex) Check(ctx context.Context) (bool, error) { return m.hold.Load().Check(ctx) }

// Valid asks the server whether the lock is held.
//
// Deprecated: as in redsync. The answer is old when it arrives: see Until and Fence.
func (m *Mutex) Valid() (bool, error) { return m.Check(context.Background()) }

// ValidContext asks the server whether the lock is held.
//
// Deprecated: as in redsync. The answer is old when it arrives: see Until and Fence.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) { return m.Check(ctx) }

// Exec runs one command on the server, in the same step in which the server checks that the lock is held: a late owner changes nothing.
// The reply is the command's own. If the lock is not held its error is [ErrNotHeld]. Of several names, the first one guards.
//
//	err := mutex.Exec(ctx, "SET", "stock:7", 3).Err()
func (m *Mutex) Exec(ctx context.Context, command string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, append([]any{command}, args...)...)
	value, err := m.hold.Load().Exec(ctx, command, args...)
	if value == nil && err == nil {
		err = redis.Nil
	}
	cmd.SetVal(value)
	cmd.SetErr(err)
	return cmd
}
