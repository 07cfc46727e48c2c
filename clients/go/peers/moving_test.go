// Package peers holds this client against other lock libraries: one story with each, both on one lock while users move from one to the
// other, and the same contention for all. It is a module of its own, so that who uses the client does not depend on its peers.
package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// A mutex is redsync's and this client's.
type mutex interface {
	Name() string
	Value() string
	Until() time.Time
	Lock() error
	LockContext(context.Context) error
	TryLock() error
	TryLockContext(context.Context) error
	Unlock() (bool, error)
	UnlockContext(context.Context) (bool, error)
	Extend() (bool, error)
	ExtendContext(context.Context) (bool, error)
	Valid() (bool, error)
	ValidContext(context.Context) (bool, error)
}

// story is what becomes of two mutexes of one name.
func story(one, other mutex) string {
	var told []any
	said := func(ok bool, err error) { told = append(told, ok, err == nil) }
	told = append(told, one.Name(), one.Value(), one.Until().IsZero())
	said(one.Unlock())
	told = append(told, one.Lock() == nil, other.TryLock() == nil, other.Lock() == nil)
	left := time.Until(one.Until())
	told = append(told, len(one.Value()), left > 7*time.Second && left < 7920*time.Millisecond)
	said(one.Valid())
	said(one.Extend())
	said(other.Extend())
	said(one.Unlock())
	said(one.Unlock())
	valid, _ := one.Valid() // redsync returns an error, too.
	told = append(told, valid)
	said(one.Extend())
	told = append(told, other.TryLock() == nil)
	said(other.Unlock())
	return fmt.Sprint(told)
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
	oldLocks := redsync.New(goredis.NewPool(client))
	of := story(oldLocks.NewMutex("a", redsync.WithTries(2)), oldLocks.NewMutex("a", redsync.WithTries(2)))
	if is := story(locks.NewMutex("a", newlock.WithTries(2)), locks.NewMutex("a", newlock.WithTries(2))); is != of {
		t.Fatalf("%s, and not %s", is, of)
	}
	mutex := locks.NewMutex("a")
	old := oldLocks.NewMutex("a", redsync.WithRetryDelay(20*time.Millisecond), redsync.WithTries(1000))

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
}
