// Command beliefs prints what the clients of one process believe they hold, while servers fail over:
//
//	beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS
//
// Each client takes one of so many locks, KEY0, KEY1, …, keeps it for so long, unlocks it, and begins again until the process is
// ended. Printed is a line for each hold: LOCK TOKEN FENCE FROM_US UNTIL_US, by the machine's monotonic clock. UNTIL is when it was
// last seen not to be lost. It says start on stderr.
package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

func main() {
	var port, key string
	var keys, clients int
	var ttl, hold int64
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &port, &keys, &key, &clients, &ttl, &hold); err != nil {
		fmt.Fprintln(os.Stderr, "usage: beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS:", err)
		os.Exit(1)
	}
	locks := redislock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port}))
	expiry := redislock.WithExpiry(time.Duration(ttl) * time.Millisecond)
	fmt.Fprintln(os.Stderr, "start")
	for range clients {
		go func() {
			for {
				name := fmt.Sprint(key, rand.IntN(keys))
				if err := use(locks.NewMutex(name, expiry, redislock.WithTries(math.MaxInt)), hold*1000); err != nil {
					fmt.Fprintln(os.Stderr, err)
					time.Sleep(50 * time.Millisecond)
				}
			}
		}()
	}
	select {}
}

func use(mutex *redislock.Mutex, holdUs int64) error {
	if err := mutex.Lock(); err != nil {
		return err
	}
	_, stop := mutex.KeepAlive(context.Background())
	defer stop()
	begun := nowUs()
	until := begun
	// The mutex is looked at after the clock, so that it was held at that time.
	for now := begun; now < begun+holdUs && time.Now().Before(mutex.Until()); now = nowUs() {
		until = now
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(mutex.Name(), mutex.Value(), mutex.Fence(), begun, until)
	_, err := mutex.Unlock()
	return err
}

// nowUs is CLOCK_MONOTONIC of Linux. The time package counts from the start of the process.
func nowUs() int64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0); err != 0 {
		panic(err)
	}
	return now.Nano() / 1000
}
