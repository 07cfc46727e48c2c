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
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// RedisLock makes mutexes on one server. It is safe for concurrent use.
type RedisLock struct {
	driver   driver.Driver
	waiters  *waiters
	fallback bool // the user allows locks without the module

	mu     sync.Mutex // of what follows
	choice choice     // whether locks are the module's, once that is known
}

// longestSlice is the longest time that one command waits: what a dead connection costs.
const longestSlice = 30 * time.Second

// New returns a RedisLock that uses client, which is a *redis.Client (of redis.NewClient or redis.NewFailoverClient) or
// a *redis.ClusterClient. It panics if client is a *redis.Ring: [Open] returns that as an error, and says why.
//
// What answers at once goes through client. What waits has connections of its own, made with client's settings, because a
// waiter would hold a connection of the pool that its holder may need to unlock.
func New(client redis.UniversalClient) *RedisLock {
	if _, ring := client.(ofRing); ring {
		panic(refusal(client))
	}
	return NewWith(newGoRedis(client, longestSlice+margin))
}

// Open is [New] with options. It returns an [ErrClient] for a client that no lock can be right on.
func Open(client redis.UniversalClient, options ...ClientOption) (*RedisLock, error) {
	if err := refusal(client); err != nil {
		return nil, err
	}
	return NewWith(newGoRedis(client, longestSlice+margin), options...), nil
}

// NewWith returns a RedisLock that uses another library than go-redis. The modules rueidisdriver and valkeydriver, beside this
// one, have the drivers of rueidis and valkey-go.
func NewWith(driver driver.Driver, options ...ClientOption) *RedisLock {
	r := &RedisLock{driver: driver, waiters: &waiters{driver: driver, slice: longestSlice}}
	for _, option := range options {
		option(r)
	}
	return r
}

// A ClientOption configures a RedisLock.
type ClientOption func(*RedisLock)

// Close closes the idle connections that were used to wait. The client stays open: it is the caller's.
func (r *RedisLock) Close() error { return r.driver.Close() }

// NewMutex returns a mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewMutex(name string, options ...Option) *Mutex {
	return r.newMutex(name, "LOCK.ACQUIRE", options)
}

// acquireShare is the command of a reader.
const acquireShare = "RWLOCK.RLOCK"

// NewRWMutex returns a reader-writer mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewRWMutex(name string, options ...Option) *RWMutex {
	writer, reader := r.newMutex(name, "RWLOCK.WLOCK", options), r.newMutex(name, acquireShare, options)
	writer.otherSide, reader.otherSide = reader, writer
	writer.sides = &sides{}
	reader.sides = writer.sides
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
		driftFactor:  leastDrift,
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
