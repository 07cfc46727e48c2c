package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	newlock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// done checks what Unlock or Extend has returned.
func done(t *testing.T) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Fatalf("done: %v, %v", ok, err)
		}
	}
}

// waits has a lock be asked for while it is held, and given when it is released.
func waits(t *testing.T, lock func() error, release func() (bool, error)) {
	t.Helper()
	had := make(chan error, 1)
	go func() { had <- lock() }()
	select {
	case err := <-had:
		t.Fatalf("both have the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	done(t)(release())
	must(t, <-had)
}

func isTaken(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, &newlock.ErrTaken{}) {
		t.Fatalf("TryLock: %v", err)
	}
}

func TestRedsyncKeepsThisClientOut(t *testing.T) {
	old, mutex := oldLocks.NewMutex("redsync first"), newLocks.NewMutex("redsync first")
	must(t, old.Lock())
	isTaken(t, mutex.TryLock())
	waits(t, mutex.Lock, old.Unlock)
}

func TestThisClientKeepsRedsyncOut(t *testing.T) {
	mutex := newLocks.NewMutex("redsync second")
	must(t, mutex.Lock())
	old := oldLocks.NewMutex("redsync second", redsync.WithRetryDelay(20*time.Millisecond), redsync.WithTries(1000))
	if err := old.TryLock(); err == nil {
		t.Fatal("both have the lock")
	}
	// Its scripts, which read a string, get an error here, and change nothing.
	for _, script := range []func() (bool, error){old.Extend, old.Unlock} {
		if ok, err := script(); ok || err == nil {
			t.Fatalf("redsync changed what it has not: %v, %v", ok, err)
		}
	}
	done(t)(mutex.Extend())
	waits(t, old.Lock, mutex.Unlock)
}

func TestBsmRedislockIsKeptOutBothWays(t *testing.T) {
	old, err := redislock.Obtain(ctx, client, "bsm", time.Minute, nil)
	must(t, err)
	mutex := newLocks.NewMutex("bsm")
	isTaken(t, mutex.TryLock())
	must(t, old.Release(ctx))
	must(t, mutex.TryLock())
	// It has no lock, but instead of ErrNotObtained its script's WRONGTYPE, which its retries do not outwait.
	if _, err := redislock.Obtain(ctx, client, "bsm", time.Minute, nil); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Fatalf("Obtain: %v", err)
	}
}
