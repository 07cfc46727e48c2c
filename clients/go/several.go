package redislock

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis-lock/redis-lock/clients/go/core"
)

// An RWMutex is held by one writer or by any number of readers. Its own methods (Lock, Unlock, Extend, Fence, …) are the
// writer's; [RWMutex.Reader] has all of these for the reader. Readers and writers wait in one line, so that neither starves.
//
// As with [Mutex], every reader and every writer has an RWMutex of its own.
type RWMutex struct{ *Mutex }

// NewRWMutex returns a reader-writer mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewRWMutex(name string, options ...Option) *RWMutex {
	writer, reader := r.newMutex(name, core.AcquireWriter, options), r.newMutex(name, core.AcquireShare, options)
	writer.other, reader.other = reader, writer
	return &RWMutex{writer}
}

// Reader returns the reader's side: its Lock takes a share.
func (rw *RWMutex) Reader() *Mutex { return rw.other }

// RLock takes a share of the lock. A writer with the same value becomes a reader, and is a writer
// no more: Until has passed, and the context of KeepAlive ends. That counts without an answer, too.
// An RLock that then gives up releases the lock.
func (rw *RWMutex) RLock() error { return rw.other.Lock() }

// RLockContext takes a share of the lock.
func (rw *RWMutex) RLockContext(ctx context.Context) error { return rw.other.LockContext(ctx) }

// TryRLock takes a share of the lock if it can be had at once.
func (rw *RWMutex) TryRLock() error { return rw.other.TryLock() }

// TryRLockContext takes a share of the lock if it can be had at once.
func (rw *RWMutex) TryRLockContext(ctx context.Context) error { return rw.other.TryLockContext(ctx) }

// RUnlock gives the share back.
func (rw *RWMutex) RUnlock() (bool, error) { return rw.other.Unlock() }

// RUnlockContext gives the share back.
func (rw *RWMutex) RUnlockContext(ctx context.Context) (bool, error) {
	return rw.other.UnlockContext(ctx)
}

// A Semaphore has a number of permits, so that at most as many holders have one at the same time. It is safe for concurrent use.
//
// The number is not stored on the server. While callers name different ones, the smallest counts as long as its owner holds.
type Semaphore struct{ newPermit func() *Mutex }

// NewSemaphore returns a semaphore with the given name, which is the key of the lock. The options are those of a mutex, and are for
// each permit. With less than one permit, Acquire and TryAcquire return the server's error.
func (r *RedisLock) NewSemaphore(name string, permits int, options ...Option) *Semaphore {
	limited := append(slices.Clip(options), func(m *Mutex) { m.lock.Limit = cmp.Or(permits, -1) }) // 0 would be no semaphore.
	return &Semaphore{func() *Mutex { return r.NewMutex(name, limited...) }}
}

// Acquire takes a permit: a [Mutex] that is locked, with its own token, expiry and fence. Its Unlock gives the permit back. Acquire waits
// as [Mutex.LockContext] does, and returns the same errors.
func (s *Semaphore) Acquire(ctx context.Context) (*Mutex, error) {
	return s.take(ctx, (*Mutex).LockContext)
}

// TryAcquire takes a permit if it can be had at once, as [Mutex.TryLockContext] does.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Mutex, error) {
	return s.take(ctx, (*Mutex).TryLockContext)
}

// take returns no permit beside an error: a program may ask by that whether it has one.
func (s *Semaphore) take(ctx context.Context, lock func(*Mutex, context.Context) error) (*Mutex, error) {
	permit := s.newPermit()
	if err := lock(permit, ctx); err != nil {
		return nil, err
	}
	return permit, nil
}

// NewMultiMutex returns a mutex of several locks, which are taken in one step, or not at all. While it waits it holds none of them, so two
// that name the same locks in different orders never wait for each other. It has one fence.
//
// The names are 1 to 128 different keys, in a cluster of one slot. Of the shared ones it takes a share. Without a name, Lock returns an
// error.
func (r *RedisLock) NewMultiMutex(exclusive, shared []string, options ...Option) *Mutex {
	m := r.newMutex("", core.AcquireSeveral, options)
	if names := slices.Concat(exclusive, shared); len(names) > 0 {
		m.lock.Names, m.lock.Shared = names, len(shared)
	}
	return m
}
