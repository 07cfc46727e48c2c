package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

var (
	server *testserver.Server
	ctx    = context.Background()
	admin  *redis.Client
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if server, err = testserver.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		admin = server.Client()
		defer admin.Close()
		return m.Run()
	}())
}

// newLocks returns a RedisLock on a server without keys.
func newLocks(t *testing.T) *RedisLock {
	t.Helper()
	return newLocksAt(t, server.Addr)
}

func newLocksAt(t *testing.T, addr string) *RedisLock {
	t.Helper()
	must(t, admin.FlushAll(ctx).Err())
	return locksTo(t, addr)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// released checks what Unlock returned.
func released(t *testing.T) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Fatalf("unlocked: %v, %v", ok, err)
		}
	}
}

// failed checks that nothing was done, and that the error says why; nil: that there is none.
func failed(t *testing.T, want error) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		if ok || !errors.Is(err, want) {
			t.Fatalf("done: %v, %v instead of %v", ok, err, want)
		}
	}
}

// eventually waits for a condition, within a bound that only a bug or a dead machine outlasts.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// waiting returns how many wait in the server's queue for a key.
func waiting(key string) int { return waitingAt(admin, key) }

func waitingAt(client *redis.Client, key string) int {
	return strings.Count(queueOf(client, key), "waited")
}

// absent returns how many places in the queue for a key nobody listens for.
func absent(key string) int {
	waiters := queueOf(admin, key)
	return strings.Count(waiters, "waited") - strings.Count(waiters, "client")
}

// queueOf returns what LOCK.INFO says of the waiters. Both protocols' replies print the field as one line.
func queueOf(client *redis.Client, key string) string {
	info, err := client.Do(ctx, "LOCK.INFO", key).Result()
	if err != nil {
		return ""
	}
	return regexp.MustCompile(`waiters.*`).FindString(fmt.Sprint(info))
}

// calls returns how often the server ran a command since the last CONFIG RESETSTAT.
func calls(t *testing.T, command string) int { return callsAt(t, admin, command) }

func callsAt(t *testing.T, client *redis.Client, command string) int {
	t.Helper()
	info, err := client.Info(ctx, "commandstats").Result()
	must(t, err)
	found := regexp.MustCompile(`(?i)cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	must(t, err)
	return n
}

// inBackground runs Lock and returns its result when it is there.
func inBackground(lock func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lock() }()
	return done
}

// orderOf has n mutexes wait for the lock "a", one after the other; each holds it for a time. The result waits for all of them, and
// returns their numbers in the order in which they had the lock.
func orderOf(t *testing.T, locks *RedisLock, n int, hold time.Duration) func() []int {
	t.Helper()
	var mu sync.Mutex
	var order []int
	var done []<-chan error
	for i := 0; i < n; i++ {
		done = append(done, inBackground(func() error {
			mutex := locks.NewMutex("a", WithTries(forever), WithExpiry(time.Minute))
			if err := mutex.Lock(); err != nil {
				return err
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(hold)
			_, err := mutex.Unlock()
			return err
		}))
		eventually(t, "a place in the queue", func() bool { return waiting("a") == i+1 })
	}
	return func() []int {
		t.Helper()
		for _, d := range done {
			must(t, result(t, d))
		}
		return order
	}
}

func result(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("the lock never returned")
		return nil
	}
}
