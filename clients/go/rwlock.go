package redislock

import (
	"context"

	"github.com/redis-lock/redis-lock/clients/go/core"
)

// An RWMutex is held by one writer or by any number of readers. Its own methods (Lock, Unlock, Extend, Fence, …) are the
// writer's; [RWMutex.Reader] has all of these for the reader. Readers and writers wait in one line, so that neither starves.
//
// As with [Mutex], every reader and every writer has an RWMutex of its own.
type RWMutex struct {
	*Mutex
	reader *Mutex
}

// NewRWMutex returns a reader-writer mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewRWMutex(name string, options ...Option) *RWMutex {
	writer, reader := r.newMutex(name, core.AcquireWriter, options), r.newMutex(name, core.AcquireShare, options)
	writer.otherSide, reader.otherSide = reader, writer
	return &RWMutex{Mutex: writer, reader: reader}
}

// Reader returns the reader's side: its Lock takes a share.
func (rw *RWMutex) Reader() *Mutex { return rw.reader }

// RLock takes a share of the lock. A writer with the same value becomes a reader, and is a writer
// no more: Until has passed, and the context of KeepAlive ends. That counts without an answer, too.
// An RLock that then gives up releases the lock.
func (rw *RWMutex) RLock() error { return rw.reader.Lock() }

// RLockContext takes a share of the lock.
func (rw *RWMutex) RLockContext(ctx context.Context) error { return rw.reader.LockContext(ctx) }

// TryRLock takes a share of the lock if it can be had at once.
func (rw *RWMutex) TryRLock() error { return rw.reader.TryLock() }

// TryRLockContext takes a share of the lock if it can be had at once.
func (rw *RWMutex) TryRLockContext(ctx context.Context) error { return rw.reader.TryLockContext(ctx) }

// RUnlock gives the share back.
func (rw *RWMutex) RUnlock() (bool, error) { return rw.reader.Unlock() }

// RUnlockContext gives the share back.
func (rw *RWMutex) RUnlockContext(ctx context.Context) (bool, error) {
	return rw.reader.UnlockContext(ctx)
}
