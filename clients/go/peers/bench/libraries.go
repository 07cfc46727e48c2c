package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	newlock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

const expiry = 30 * time.Second

// A locker is one who contends.
type locker interface {
	acquire(ctx context.Context) error
	release(ctx context.Context) error
}

// Each library with its defaults, but with an expiry of 30s and no end of patience.
var libraries = []struct {
	name    string
	connect func(client *redis.Client, key string) func() locker
}{
	{"redis-lock", func(client *redis.Client, key string) func() locker {
		locks := newlock.New(client)
		return func() locker {
			return mutex{locks.NewMutex(key, newlock.WithExpiry(expiry), newlock.WithTries(math.MaxInt))}
		}
	}},
	// It tries again after 50 to 250ms, and of its own accord 31 times.
	{"redsync", func(client *redis.Client, key string) func() locker {
		locks := redsync.New(goredis.NewPool(client))
		return func() locker {
			return mutex{locks.NewMutex(key, redsync.WithExpiry(expiry), redsync.WithTries(math.MaxInt))}
		}
	}},
	// Of its own accord it does not try again; every 100ms is what its documentation shows.
	{"bsm-redislock", func(client *redis.Client, key string) func() locker {
		locks := redislock.New(client)
		return func() locker { return &bsm{locks: locks, key: key} }
	}},
}

func library(name string) func(*redis.Client, string) func() locker {
	for _, library := range libraries {
		if library.name == name {
			return library.connect
		}
	}
	log.Fatalf("no library is called %q: see bench --list", name)
	return nil
}

// mutex is redsync's, and this client's, for they have the same face.
type mutex struct {
	locks interface {
		LockContext(context.Context) error
		UnlockContext(context.Context) (bool, error)
	}
}

func (m mutex) acquire(ctx context.Context) error { return m.locks.LockContext(ctx) }

func (m mutex) release(ctx context.Context) error {
	ok, err := m.locks.UnlockContext(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("not held any more")
	}
	return err
}

type bsm struct {
	locks *redislock.Client
	key   string
	lock  *redislock.Lock
}

func (b *bsm) acquire(ctx context.Context) (err error) {
	b.lock, err = b.locks.Obtain(ctx, b.key, expiry, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	return err
}

func (b *bsm) release(ctx context.Context) error { return b.lock.Release(ctx) }
