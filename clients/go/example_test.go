package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/idempotency"
	"github.com/redis/go-redis/v9"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: redislock.ServerAddr()})
	defer client.Close()
	locks := redislock.New(client)
	defer locks.Close()

	mutex := locks.NewMutex("jobs:42", redislock.WithExpiry(30*time.Second))
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held, with a fence:", mutex.Fence() > 0)

	// How long another one waits is the context's to say, so the tries shall not end it.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := locks.NewMutex("jobs:42", redislock.WithTries(1_000_000)).LockContext(ctx)
	fmt.Println(errors.Is(err, redislock.ErrFailed), errors.Is(err, context.DeadlineExceeded))

	if ok, err := mutex.Unlock(); !ok || err != nil {
		log.Fatal("somebody else may have had the lock: ", err)
	}
	// Output:
	// held, with a fence: true
	// true true
}

func render(context.Context, string) ([]byte, error) {
	fmt.Println("rendering")
	return []byte("<html>"), nil
}

// page returns a page, which one process renders and all others get.
func page(ctx context.Context, locks *redislock.RedisLock, id string) ([]byte, error) {
	return locks.Once(ctx, "page:"+id, func(ctx context.Context) ([]byte, error) {
		return render(ctx, id) // ctx ends when the lock is lost
	}, redislock.WithKeep(time.Minute), redislock.WithEarly(10*time.Second))
}

func ExampleRedisLock_Once() {
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: redislock.ServerAddr()}))
	defer locks.Close()

	for range 2 {
		html, err := page(context.Background(), locks, "42")
		fmt.Println(string(html), err)
	}
	// Output:
	// rendering
	// <html> <nil>
	// <html> <nil>
}

func TestTheReadmesOnce(t *testing.T) {
	readme, _ := os.ReadFile("README.md")
	source, err := os.ReadFile("example_test.go")
	_, function, _ := strings.Cut(string(source), "// page")
	function, _, _ = strings.Cut(function, "\n}\n")
	if err != nil || !strings.Contains(string(readme), function) {
		t.Error("the README has another function")
	}
	// The README's line for HTTP compiles.
	_ = func(locks *redislock.RedisLock, payments http.Handler, userOf func(*http.Request) string) {
		http.Handle("/payments", &idempotency.Handler{Locks: locks, Next: payments, Owner: userOf})
	}
}
