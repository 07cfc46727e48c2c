// Package peers holds this client against other lock libraries: their own tests, both on one lock while users move from one to the
// other, and the same contention for all. It is a module of its own, so that who uses the client does not depend on its peers.
package peers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	newlock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hands has a lock be asked for while another has it, and given when that is released.
func hands(t *testing.T, unlock func() (bool, error), lock func() error) {
	t.Helper()
	had := make(chan error, 1)
	go func() { had <- lock() }()
	select {
	case err := <-had:
		t.Fatalf("both have the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	ok, err := unlock()
	if !ok || err != nil {
		t.Fatalf("released: %v, %v", ok, err)
	}
	must(t, <-had)
}

func TestOldAndNewKeepEachOtherOut(t *testing.T) {
	server, err := testserver.Start()
	must(t, err)
	defer server.Stop()
	client := server.Client()
	defer client.Close()
	locks := newlock.New(client)
	defer locks.Close()
	mutex := locks.NewMutex("a")
	old := redsync.New(goredis.NewPool(client)).NewMutex("a", redsync.WithRetryDelay(20*time.Millisecond), redsync.WithTries(1000))

	must(t, old.Lock())
	hands(t, old.Unlock, mutex.Lock)
	// Redsync's scripts, which read a string, get an error here, and change nothing.
	for _, script := range []func() (bool, error){old.Extend, old.Unlock} {
		if ok, err := script(); ok || err == nil {
			t.Fatalf("redsync changed what it has not: %v, %v", ok, err)
		}
	}
	hands(t, mutex.Unlock, old.Lock)
	_, err = old.Unlock()
	must(t, err)

	ctx := context.Background()
	bsm, err := redislock.Obtain(ctx, client, "a", time.Minute, nil)
	must(t, err)
	if err := mutex.TryLock(); !errors.Is(err, &newlock.ErrTaken{}) {
		t.Fatal("both have the lock: ", err)
	}
	must(t, bsm.Release(ctx))
	must(t, mutex.TryLock())
	// It has no lock, but instead of ErrNotObtained its script's WRONGTYPE, which its retries do not outwait.
	if _, err := redislock.Obtain(ctx, client, "a", time.Minute, nil); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Fatalf("Obtain: %v", err)
	}
}
