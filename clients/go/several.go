package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis-lock/redis-lock/clients/go/core"
)

// A Semaphore has a number of permits, so that at most as many holders have one at the same time. It is safe for concurrent use.
//
// The number is not stored on the server. While callers name different ones, the smallest counts as long as its owner holds.
type Semaphore struct {
	locks   *RedisLock
	name    string
	permits int
	options []Option
}

// NewSemaphore returns a semaphore with the given name, which is the key of the lock. The options are those of a mutex, and are for
// each permit. With less than one permit, Acquire and TryAcquire return an error.
func (r *RedisLock) NewSemaphore(name string, permits int, options ...Option) *Semaphore {
	return &Semaphore{locks: r, name: name, permits: permits, options: options}
}

// Acquire takes a permit: a [Mutex] that is locked, with its own token, expiry and fence. Its Unlock gives the permit back. Acquire waits
// as [Mutex.LockContext] does, and returns the same errors.
func (s *Semaphore) Acquire(ctx context.Context) (*Mutex, error) {
	permit := s.newPermit()
	return permit.locked(permit.LockContext(ctx))
}

// TryAcquire takes a permit if it can be had at once, as [Mutex.TryLockContext] does.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Mutex, error) {
	permit := s.newPermit()
	return permit.locked(permit.TryLockContext(ctx))
}

func (s *Semaphore) newPermit() *Mutex {
	permit := s.locks.newMutex(s.name, core.AcquireExclusive, s.options)
	permit.lock.Limit = s.permits
	if s.permits < 1 {
		permit.lock.Invalid = fmt.Errorf("redislock: a semaphore has at least one permit, not %d", s.permits)
	}
	return permit
}

func (m *Mutex) locked(err error) (*Mutex, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// A MultiMutex is several locks that are taken in one step, or not at all. While it waits it holds none of them, so two that name the same
// locks in different orders never wait for each other. It has one fence. Its methods are those of a [Mutex].
type MultiMutex struct {
	*Mutex
}

// NewMultiMutex returns a mutex of several names, which are 1 to 128 different keys, in a cluster of one slot. Of the shared ones it takes
// a share. Without a name, Lock returns an error.
func (r *RedisLock) NewMultiMutex(exclusive, shared []string, options ...Option) *MultiMutex {
	m := r.newMutex("", core.AcquireSeveral, options)
	if names := slices.Concat(exclusive, shared); len(names) > 0 {
		m.lock.Names, m.lock.Shared = names, len(shared)
	} else {
		m.lock.Invalid = errors.New("redislock: a MultiMutex has at least one name")
	}
	return &MultiMutex{m}
}

// Names returns the names of all locks, the exclusive ones first.
func (m *MultiMutex) Names() []string { return slices.Clone(m.lock.Names) }
