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
//
// The package core has the same without go-redis and without redsync's names.
package redislock

import (
	"math/rand/v2"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis-lock/redis-lock/clients/go/goredisdriver"
	"github.com/redis/go-redis/v9"
)

// The errors of the package core, which are those of this one.
var (
	// ErrClient is wrapped by the error of [Open] for a client that no lock can be right on. The text says why.
	ErrClient = goredisdriver.ErrClient
	// ErrFailed is returned by Lock when its context ended before the lock was had. The context's error and its cause are wrapped.
	ErrFailed = core.ErrFailed
	// ErrNotHeld says that the lock is no longer held: by Exec, which has not run the command, and as the cause of a context.
	ErrNotHeld = core.ErrNotHeld
	// ErrCancelled is returned by Lock when somebody has ended its wait by LOCK.CANCEL.
	ErrCancelled = core.ErrCancelled
	// ErrExpiry is wrapped where the server's setting lock.max-ttl is shorter than the expiry.
	ErrExpiry = core.ErrExpiry
	// ErrUnsupported is wrapped where the server does not know the command of what was asked. The text names it.
	ErrUnsupported = core.ErrUnsupported
	// ErrModuleMissing is wrapped where the server has no redis-lock module. The text says how to load it, and what [WithFallback]
	// offers where it cannot be loaded.
	ErrModuleMissing = core.ErrModuleMissing
)

type (
	// ErrTaken is returned, as a pointer, when somebody else holds the lock.
	ErrTaken = core.ErrTaken
	// A RedisError is an answer of the server that is an error, or the failure to get one.
	RedisError = core.RedisError
	// A Hold is what one acquire has got.
	Hold = core.Hold
	// An Observer is told of every wait and every hold. The module redislockotel has one for OpenTelemetry.
	Observer = core.Observer
)

// RedisLock makes mutexes on one server. It is safe for concurrent use.
type RedisLock struct{ client *core.Client }

// New returns a RedisLock that uses client, which is a *redis.Client (of redis.NewClient or redis.NewFailoverClient) or
// a *redis.ClusterClient. It panics for another one, as for a *redis.Ring: [Open] returns that as an error, and says why.
//
// It has connections of its own, made with client's settings. The client's pool, time-out for its pool and hooks are the user's alone.
func New(client redis.UniversalClient) *RedisLock {
	locks, err := Open(client)
	if err != nil {
		panic(err)
	}
	return locks
}

// Open is [New] with options. It returns an [ErrClient] for a client that no lock can be right on.
func Open(client redis.UniversalClient, options ...ClientOption) (*RedisLock, error) {
	driver, err := goredisdriver.New(client)
	if err != nil {
		return nil, err
	}
	return NewWith(driver, options...), nil
}

// NewWith returns a RedisLock that uses another library than go-redis. The module rueidisdriver, beside this one, has the driver of
// rueidis.
func NewWith(driver driver.Driver, options ...ClientOption) *RedisLock {
	r := &RedisLock{client: &core.Client{Driver: driver}}
	for _, option := range options {
		option(r)
	}
	return r
}

// A ClientOption configures a RedisLock.
type ClientOption func(*RedisLock)

// WithFallback lets locks work on a server that has no redis-lock module and cannot load it, by SET NX PX and Lua scripts.
// Without this option that is an [ErrModuleMissing]. On a server that has the module the option changes nothing.
//
// Such a lock has less. There is no queue: waiters ask again and again, in no order. [Mutex.Fence] is 0: never send it to a resource.
// An eviction or a failover can end the lock early. RWMutex, Semaphore, NewMultiMutex, Exec, WithLinger and a RunOnce with
// atLeast return an ErrModuleMissing. The first use says so once, by slog.Warn.
//
// The choice is made at the first use, from what the server answers, and stays as long as the RedisLock.
func WithFallback() ClientOption { return func(r *RedisLock) { r.client.Fallback = true } }

// WithObserver has observer told of every wait and every hold.
func WithObserver(observer Observer) ClientOption {
	return func(r *RedisLock) { r.client.Observer = observer }
}

// Close closes the connections of the locks. The client stays open: it is the caller's.
func (r *RedisLock) Close() error { return r.client.Driver.Close() }

// NewMutex returns a mutex with the given name, which is the key of the lock.
func (r *RedisLock) NewMutex(name string, options ...Option) *Mutex {
	return r.newMutex(name, core.AcquireExclusive, options)
}

func (r *RedisLock) newMutex(name, command string, options []Option) *Mutex {
	m := &Mutex{lock: *r.client.Lock(name), tries: 32}
	m.delayFunc = func(int) time.Duration { return 50*time.Millisecond + rand.N(200*time.Millisecond) }
	m.lock.Command, m.lock.Live = command, m.live
	m.other = m
	m.hold.Store(m.lock.Adopt(""))
	for _, option := range options {
		option(m)
	}
	return m
}
