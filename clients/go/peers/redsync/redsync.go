// Package redsync has the names that redsync's own tests use, over this client: its tests are of the package itself and
// make a Mutex from its fields. suite.sh lays them beside this file, as they are in redsync's module, and runs them.
package redsync

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4/redis"
	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/core"
)

// The errors are this client's.
type (
	ErrTaken   = redislock.ErrTaken
	RedisError = redislock.RedisError
)

// ErrFailed is this client's.
var ErrFailed = redislock.ErrFailed

// ErrNodeTaken tells of one of several servers.
type ErrNodeTaken struct{ Node int }

func (ErrNodeTaken) Error() string { return "lock already taken" }

// The options that the tests use, as they are called there.
type option func(*Mutex)

// WithExpiry is redsync's.
func WithExpiry(expiry time.Duration) option { return func(m *Mutex) { m.expiry = expiry } }

// WithValue is redsync's.
func WithValue(value string) option { return func(m *Mutex) { m.value = value } }

// Redsync is redsync's.
type Redsync struct{ pools []redis.Pool }

// New is redsync's.
func New(pools ...redis.Pool) *Redsync { return &Redsync{pools} }

// NewMutex is redsync's, with its defaults.
func (r *Redsync) NewMutex(name string, options ...option) *Mutex {
	m := &Mutex{name: name, quorum: len(r.pools)/2 + 1, pools: r.pools}
	for _, option := range options {
		option(m)
	}
	return m
}

// Mutex has the fields of redsync's. What they say goes into a mutex of this client before every call.
type Mutex struct {
	name          string
	expiry        time.Duration
	tries         int
	delayFunc     func(tries int) time.Duration
	driftFactor   float64
	timeoutFactor float64 //lint:ignore U1000 of several servers
	quorum        int
	genValueFunc  func() (string, error)
	value         string
	setNXOnExtend bool
	pools         []redis.Pool
}

// mutex is this client's, on the first of the pools.
func (m *Mutex) mutex() *redislock.Mutex {
	options := []redislock.Option{redislock.WithValue(m.value), redislock.WithDriftFactor(m.driftFactor)}
	if m.expiry != 0 {
		options = append(options, redislock.WithExpiry(m.expiry))
	}
	if m.tries != 0 {
		options = append(options, redislock.WithTries(m.tries))
	}
	if m.delayFunc != nil {
		options = append(options, redislock.WithRetryDelayFunc(m.delayFunc))
	}
	if m.genValueFunc != nil {
		options = append(options, redislock.WithGenValueFunc(m.genValueFunc))
	}
	if m.setNXOnExtend {
		options = append(options, redislock.WithSetNXOnExtend())
	}
	return m.pools[0].(*pool).locks.NewMutex(m.name, options...)
}

func (m *Mutex) after(lock func(*redislock.Mutex) error) error {
	mutex := m.mutex()
	err := lock(mutex)
	if err == nil {
		m.value = mutex.Value()
	}
	return err
}

// Lock is redsync's.
func (m *Mutex) Lock() error { return m.after((*redislock.Mutex).Lock) }

// TryLock is redsync's.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is redsync's.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	return m.after(func(mutex *redislock.Mutex) error { return mutex.TryLockContext(ctx) })
}

// Unlock is redsync's.
func (m *Mutex) Unlock() (bool, error) { return m.mutex().Unlock() }

// Extend is redsync's.
func (m *Mutex) Extend() (bool, error) { return m.mutex().Extend() }

// Valid is redsync's.
func (m *Mutex) Valid() (bool, error) {
	return m.mutex().Valid() //lint:ignore SA1019 tested while it is there
}

// Value is redsync's.
func (m *Mutex) Value() string { return m.value }

// genValue is what the tests give as genValueFunc.
var genValue = core.NewToken

var _ = genValue // the tests that use it are not always here
