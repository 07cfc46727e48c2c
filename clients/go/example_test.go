package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// server returns the address of a server with the module; yours is a constant.
func server() (string, func()) {
	server, err := testserver.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return "", func() {}
	}
	return server.Addr, server.Stop
}

// connect does for the other examples what the first one shows.
func connect() (*redislock.RedisLock, func()) {
	addr, stop := server()
	client := redis.NewClient(&redis.Options{Addr: addr})
	locks := redislock.New(client)
	return locks, func() {
		defer stop()
		_, _ = locks.Close(), client.Close()
	}
}

func Example() {
	addr, stop := server()
	defer stop()

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks := redislock.New(client)
	defer locks.Close()

	mutex := locks.NewMutex("jobs:42", redislock.WithExpiry(30*time.Second))
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held, with a fence:", mutex.Fence() > 0)
	if err := locks.NewMutex("jobs:42").TryLock(); errors.Is(err, &redislock.ErrTaken{}) {
		fmt.Println("taken")
	}
	if ok, err := mutex.Unlock(); !ok || err != nil {
		log.Fatal("somebody else may have had the lock: ", err)
	}
	// Output:
	// held, with a fence: true
	// taken
}

func ExampleMutex_LockContext() {
	locks, stop := connect()
	defer stop()
	if err := locks.NewMutex("jobs:42").Lock(); err != nil {
		log.Fatal(err)
	}

	// How long to wait is the context's to say, so the tries shall not end it.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := locks.NewMutex("jobs:42", redislock.WithTries(1_000_000)).LockContext(ctx)
	fmt.Println(errors.Is(err, redislock.ErrFailed), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleSemaphore() {
	locks, stop := connect()
	defer stop()

	printers := locks.NewSemaphore("printers", 2)
	ctx := context.Background()
	for i := 0; i < 3; i++ {
		permit, err := printers.TryAcquire(ctx)
		if errors.Is(err, &redislock.ErrTaken{}) {
			fmt.Println("all are busy")
			continue
		}
		defer permit.Unlock()
		fmt.Println("a printer")
	}
	// Output:
	// a printer
	// a printer
	// all are busy
}

func ExampleRedisLock_RunOnce() {
	locks, stop := connect()
	defer stop()

	report := func(ctx context.Context, lock *redislock.Mutex) error {
		fmt.Println("making the report, with a fence:", lock.Fence() > 0)
		return ctx.Err()
	}
	for i := 0; i < 2; i++ {
		ran, err := locks.RunOnce(context.Background(), "report:lock", time.Minute, 10*time.Second, report)
		fmt.Println(ran, err)
	}
	// Output:
	// making the report, with a fence: true
	// true <nil>
	// false <nil>
}

func ExampleRWMutex() {
	locks, stop := connect()
	defer stop()

	one, two, writer := locks.NewRWMutex("page:7"), locks.NewRWMutex("page:7"), locks.NewRWMutex("page:7")
	fmt.Println(one.RLock(), two.RLock())
	fmt.Println(errors.Is(writer.TryLock(), &redislock.ErrTaken{}))
	// Output:
	// <nil> <nil>
	// true
}
