package redislock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/idempotency"
)

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
	locks, stop := connect()
	defer stop()

	for range 2 {
		html, err := page(context.Background(), locks, "7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(html))
	}
	// Output:
	// rendering
	// <html>
	// <html>
}

func TestTheReadmesOnce(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("result_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, function, _ := strings.Cut(string(source), "// page")
	function, _, _ = strings.Cut(function, "\n}\n")
	if !strings.Contains(string(readme), function) {
		t.Error("the README has another function")
	}
	// The README's line for HTTP compiles.
	_ = func(locks *redislock.RedisLock, payments http.Handler, userOf func(*http.Request) string) {
		http.Handle("/payments", &idempotency.Handler{Locks: locks, Next: payments, Owner: userOf})
	}
}
