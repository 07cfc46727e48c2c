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
