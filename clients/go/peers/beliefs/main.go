// Command beliefs prints what the clients of one process believe they hold, while servers fail over:
//
//	beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS
//
// Each client takes one of so many locks, KEY0, KEY1, …, extends it for so long, unlocks it, and begins again until the process is
// ended. Printed is a line for each hold: LOCK TOKEN FENCE FROM_US UNTIL_US, by the machine's monotonic clock. UNTIL is when it was
// last seen not to be lost. It says start on stderr.
package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

type settings struct {
	key       string
	keys      int
	ttl, hold time.Duration
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS")
		os.Exit(1)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	locks := redislock.New(client)
	s := settings{key: os.Args[3], keys: number(2), ttl: millis(5), hold: millis(6)}
	fmt.Fprintln(os.Stderr, "start")
	for range number(4) {
		go live(locks, s)
	}
	select {}
}

func live(locks *redislock.RedisLock, s settings) {
	for {
		name := s.key + strconv.Itoa(rand.IntN(s.keys))
		mutex := locks.NewMutex(name, redislock.WithExpiry(s.ttl), redislock.WithTries(math.MaxInt))
		if err := use(mutex, s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func use(mutex *redislock.Mutex, s settings) error {
	if err := mutex.Lock(); err != nil {
		return err
	}
	begun := nowUs()
	until, end := begun, begun+s.hold.Microseconds()
	extended := time.Now()
	for {
		// The mutex is looked at after the clock, so that it was held at that time.
		now := nowUs()
		if now >= end || !time.Now().Before(mutex.Until()) {
			break
		}
		until = now
		if time.Since(extended) > s.ttl/3 {
			extended = time.Now()
			if ok, err := mutex.Extend(); err != nil || !ok {
				break
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(mutex.Name(), mutex.Value(), mutex.Fence(), begun, until)
	_, err := mutex.Unlock()
	return err
}

// clockMonotonic is CLOCK_MONOTONIC of Linux. The time package counts from the start of the process.
const clockMonotonic = 1

func nowUs() int64 {
	var now syscall.Timespec
	_, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if err != 0 {
		panic(err)
	}
	return now.Nano() / 1000
}

func number(argument int) int {
	n, err := strconv.Atoi(os.Args[argument])
	if err != nil {
		fmt.Fprintln(os.Stderr, "beliefs:", err)
		os.Exit(1)
	}
	return n
}

func millis(argument int) time.Duration { return time.Duration(number(argument)) * time.Millisecond }
