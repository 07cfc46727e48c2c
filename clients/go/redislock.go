// Package redislock is redsync's Mutex over the redis-lock module: the same interface, but the wait is a place in the
// server's queue instead of a sleep and another try, every lock has a fence, and there is a reader-writer lock.
//
//	locks := redislock.New(client)
//	mutex := locks.NewMutex("jobs:42")
//	if err := mutex.Lock(); err != nil {
//		return err
//	}
//	defer mutex.Unlock()
//
// It works on one server (or one primary with its replicas, or one cluster), not on a majority of independent ones.
package redislock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisLock makes mutexes on one server. It is safe for concurrent use.
type RedisLock struct {
	client  redis.UniversalClient
	waiters *waiters
}

// New returns a RedisLock that uses client, which is a *redis.Client (of redis.NewClient or redis.NewFailoverClient) or
// a *redis.ClusterClient.
//
// What answers at once goes through client. What waits has connections of its own, made with client's settings, for a
// waiter would hold a connection of the pool that its holder may need to unlock.
func New(client redis.UniversalClient) *RedisLock {
	return &RedisLock{client: client, waiters: newWaiters(client, 30*time.Second)}
}

// Close closes the idle connections that were used to wait. The client stays open: it is the caller's.
func (r *RedisLock) Close() error { return r.waiters.Close() }

// NewMutex returns a mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewMutex(name string, options ...Option) *Mutex {
	return r.newMutex(name, "LOCK.ACQUIRE", options)
}

// NewRWMutex returns a reader-writer mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewRWMutex(name string, options ...Option) *RWMutex {
	writer, reader := r.newMutex(name, "RWLOCK.WLOCK", options), r.newMutex(name, "RWLOCK.RLOCK", options)
	writer.otherSide, reader.otherSide = reader, writer
	return &RWMutex{Mutex: writer, reader: reader}
}

func (r *RedisLock) newMutex(name, acquire string, options []Option) *Mutex {
	m := &Mutex{
		locks:        r,
		names:        []string{name},
		acquire:      acquire,
		expiry:       8 * time.Second,
		tries:        32,
		delayFunc:    defaultDelay,
		genValueFunc: genValue,
		driftFactor:  0.01,
		grace:        5 * time.Second,
	}
	for _, option := range options {
		option.Apply(m)
	}
	return m
}

// An RWMutex is held by one writer or by any number of readers. Its own methods (Lock, Unlock, Extend, Fence, …) are the
// writer's; [RWMutex.Reader] has all of these for the reader. Readers and writers wait in one line, so that neither starves.
//
// As with [Mutex], every reader and every writer has an RWMutex of its own.
type RWMutex struct {
	*Mutex
	reader *Mutex
}

// Reader returns the reader's side: its Lock takes a share.
func (rw *RWMutex) Reader() *Mutex { return rw.reader }

// RLock takes a share of the lock.
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
