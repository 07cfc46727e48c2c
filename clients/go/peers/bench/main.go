// Command bench has clients contend for one lock, by this client or a peer, and prints when each acquisition was asked for,
// granted and released: CLIENT ASKED_US GRANTED_US RELEASED_US. When the clock starts, it says start on stderr.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	newlock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const expiry = 30 * time.Second

// A locker is one who contends: redsync's mutex, and this client's, for they have the same face.
type locker interface {
	LockContext(context.Context) error
	UnlockContext(context.Context) (bool, error)
}

type library struct {
	name    string
	connect func(client *redis.Client, key string) func() locker
}

// Each library with its defaults, but with an expiry of 30s and no end of patience.
var libraries = []library{
	{"redis-lock", func(client *redis.Client, key string) func() locker {
		locks := newlock.New(client)
		return func() locker { return locks.NewMutex(key, newlock.WithExpiry(expiry), newlock.WithTries(math.MaxInt)) }
	}},
	// It tries again after 50 to 250ms, and of its own accord 31 times.
	{"redsync", func(client *redis.Client, key string) func() locker {
		locks := redsync.New(goredis.NewPool(client))
		return func() locker { return locks.NewMutex(key, redsync.WithExpiry(expiry), redsync.WithTries(math.MaxInt)) }
	}},
	// Of its own accord it does not try again; every 100ms is what its documentation shows.
	{"bsm-redislock", func(client *redis.Client, key string) func() locker {
		locks := redislock.New(client)
		return func() locker { return &bsm{locks: locks, key: key} }
	}},
}

type bsm struct {
	locks *redislock.Client
	key   string
	lock  *redislock.Lock
}

func (b *bsm) LockContext(ctx context.Context) (err error) {
	b.lock, err = b.locks.Obtain(ctx, b.key, expiry, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	return err
}

func (b *bsm) UnlockContext(ctx context.Context) (bool, error) { return true, b.lock.Release(ctx) }

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	if len(os.Args) < 2 {
		log.Fatal("usage: bench LIBRARY --url URL --lock KEY --clients N --hold-ms H --seconds S, or bench --list")
	}
	if os.Args[1] == "--list" {
		for _, library := range libraries {
			fmt.Println(library.name)
		}
		return
	}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	url := flags.String("url", "redis://127.0.0.1:6379", "the server")
	key := flags.String("lock", "lock:bench", "the lock's key")
	clients := flags.Int("clients", 1, "how many contend")
	hold := flags.Int("hold-ms", 0, "how long each holds the lock")
	seconds := flags.Float64("seconds", 1, "how long it goes on")
	_ = flags.Parse(os.Args[2:])
	options, err := redis.ParseURL(*url)
	check(err)

	// One go-redis client, as a program has, with a connection for each of ours from the beginning.
	options.PoolSize, options.MinIdleConns = *clients, *clients
	client := redis.NewClient(options)
	defer client.Close()
	named := slices.IndexFunc(libraries, func(l library) bool { return l.name == os.Args[1] })
	if named < 0 {
		log.Fatalf("no library is called %q: see bench --list", os.Args[1])
	}
	locks := libraries[named].connect(client, *key)
	var group errgroup.Group
	for range *clients {
		group.Go(func() error { return client.Ping(context.Background()).Err() })
	}
	check(group.Wait())

	start := time.Now()
	fmt.Fprintln(os.Stderr, "start")
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(time.Duration(*seconds*float64(time.Second))))
	defer cancel()
	printed := make([]bytes.Buffer, *clients)
	for i := range printed {
		locker := locks()
		group.Go(func() error {
			return contend(ctx, locker, time.Duration(*hold)*time.Millisecond, func(asked, granted, released time.Time) {
				us := func(t time.Time) int64 { return t.Sub(start).Microseconds() }
				fmt.Fprintln(&printed[i], i, us(asked), us(granted), us(released))
			})
		})
	}
	check(group.Wait())
	for i := range printed {
		_, err = printed[i].WriteTo(os.Stdout)
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// contend acquires, holds and releases until ctx is over.
func contend(ctx context.Context, locker locker, hold time.Duration, done func(asked, granted, released time.Time)) error {
	for ctx.Err() == nil {
		asked := time.Now()
		if err := locker.LockContext(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // The end came while it waited.
			}
			return err
		}
		granted := time.Now()
		time.Sleep(hold)
		// What is held at the end is released all the same.
		if ok, err := locker.UnlockContext(context.WithoutCancel(ctx)); err != nil || !ok {
			return fmt.Errorf("not released: %v, %w", ok, err)
		}
		done(asked, granted, time.Now())
	}
	return nil
}
