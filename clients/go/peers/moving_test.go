package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	newlock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

var (
	ctx    = context.Background()
	client *redis.Client
	// Both are called what their users call them.
	newLocks *newlock.RedisLock
	oldLocks *redsync.Redsync
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		server, err := testserver.Start()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		client = server.Client()
		defer client.Close()
		newLocks, oldLocks = newlock.New(client), redsync.New(goredis.NewPool(client))
		defer newLocks.Close()
		return m.Run()
	}())
}

func TestRedsyncKeepsThisClientOut(t *testing.T) {
	old := oldLocks.NewMutex("redsync first")
	if err := old.Lock(); err != nil {
		t.Fatal(err)
	}
	mutex := newLocks.NewMutex("redsync first")
	if err := mutex.TryLock(); !errors.Is(err, &newlock.ErrTaken{}) {
		t.Fatalf("TryLock: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- mutex.Lock() }()
	select {
	case err := <-done:
		t.Fatalf("both have the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if ok, err := old.Unlock(); !ok || err != nil {
		t.Fatalf("redsync could not unlock: %v, %v", ok, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestThisClientKeepsRedsyncOut(t *testing.T) {
	mutex := newLocks.NewMutex("redsync second")
	if err := mutex.Lock(); err != nil {
		t.Fatal(err)
	}
	old := oldLocks.NewMutex("redsync second", redsync.WithRetryDelay(20*time.Millisecond), redsync.WithTries(1000))
	if err := old.TryLock(); err == nil {
		t.Fatal("both have the lock")
	}
	// Its scripts, which read a string, get an error here, and change nothing.
	if ok, err := old.Extend(); ok || err == nil {
		t.Fatalf("redsync extended what it has not: %v, %v", ok, err)
	}
	if ok, err := old.Unlock(); ok || err == nil {
		t.Fatalf("redsync unlocked what it has not: %v, %v", ok, err)
	}
	if ok, err := mutex.Extend(); !ok || err != nil {
		t.Fatalf("the lock was touched: %v, %v", ok, err)
	}
	done := make(chan error, 1)
	go func() { done <- old.Lock() }()
	select {
	case err := <-done:
		t.Fatalf("both have the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if ok, err := mutex.Unlock(); !ok || err != nil {
		t.Fatalf("unlock: %v, %v", ok, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestBsmRedislockIsKeptOutBothWays(t *testing.T) {
	old, err := redislock.Obtain(ctx, client, "bsm", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	mutex := newLocks.NewMutex("bsm")
	if err := mutex.TryLock(); !errors.Is(err, &newlock.ErrTaken{}) {
		t.Fatalf("TryLock: %v", err)
	}
	if err := old.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := mutex.TryLock(); err != nil {
		t.Fatal(err)
	}
	// It has no lock, but instead of ErrNotObtained its script's WRONGTYPE, which its retries do not outwait.
	if _, err := redislock.Obtain(ctx, client, "bsm", time.Minute, nil); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Fatalf("Obtain: %v", err)
	}
}

// A rolling change: half of the workers still have the old library. A counter that is read and written back tells of every overlap.
func TestOldAndNewShareOneCounter(t *testing.T) {
	const workers, rounds = 3, 10
	counter, inside := 0, sync.Mutex{}
	step := func() error {
		if !inside.TryLock() {
			return errors.New("two holders at once")
		}
		defer inside.Unlock()
		read := counter
		time.Sleep(time.Millisecond)
		counter = read + 1
		return nil
	}
	var group errgroup.Group
	for i := 0; i < workers; i++ {
		group.Go(func() error {
			for n := 0; n < rounds; n++ {
				// Whoever polls must be patient beside a queue.
				mutex := oldLocks.NewMutex("counter", redsync.WithTries(10_000), redsync.WithRetryDelay(5*time.Millisecond))
				if err := mutex.Lock(); err != nil {
					return fmt.Errorf("redsync: %w", err)
				}
				if err := step(); err != nil {
					return err
				}
				if ok, err := mutex.Unlock(); !ok {
					return fmt.Errorf("redsync: %w", err)
				}
			}
			return nil
		})
		group.Go(func() error {
			for n := 0; n < rounds; n++ {
				mutex := newLocks.NewMutex("counter", newlock.WithTries(10_000))
				if err := mutex.Lock(); err != nil {
					return fmt.Errorf("redis-lock: %w", err)
				}
				if err := step(); err != nil {
					return err
				}
				if ok, err := mutex.Unlock(); !ok {
					return fmt.Errorf("redis-lock: %w", err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if counter != 2*workers*rounds {
		t.Fatalf("%d steps, and the counter says %d", 2*workers*rounds, counter)
	}
}
