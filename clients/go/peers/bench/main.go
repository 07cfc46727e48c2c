// Command bench has clients contend for one lock, by this client or a peer, and prints when each acquisition was asked for,
// granted and released: CLIENT ASKED_US GRANTED_US RELEASED_US. When the clock starts, it says start on stderr.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: bench LIBRARY --url URL --lock KEY --clients N --hold-ms H --seconds S, or bench --list")
	}
	if os.Args[1] == "--list" {
		for _, library := range libraries {
			fmt.Println(library.name)
		}
		return
	}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	url := flags.String("url", "redis://127.0.0.1:6379", "the server")
	key := flags.String("lock", "lock:bench", "the lock's key")
	clients := flags.Int("clients", 1, "how many contend")
	hold := flags.Int("hold-ms", 0, "how long each holds the lock")
	seconds := flags.Float64("seconds", 1, "how long it goes on")
	_ = flags.Parse(os.Args[2:])
	options, err := redis.ParseURL(*url)
	check(err)

	// One go-redis client, as a program has, with a connection for each of ours from the beginning.
	options.PoolSize, options.MinIdleConns = *clients, *clients
	client := redis.NewClient(options)
	defer client.Close()
	locks := library(os.Args[1])(client, *key)
	lockers := make([]locker, *clients)
	for i := range lockers {
		lockers[i] = locks()
	}
	var warm errgroup.Group
	for range *clients {
		warm.Go(func() error { return client.Ping(context.Background()).Err() })
	}
	check(warm.Wait())

	start := time.Now()
	fmt.Fprintln(os.Stderr, "start")
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(time.Duration(*seconds*float64(time.Second))))
	defer cancel()
	acquisitions := make([][]acquisition, *clients)
	var group errgroup.Group
	for i := range lockers {
		group.Go(func() (err error) {
			acquisitions[i], err = contend(ctx, lockers[i], time.Duration(*hold)*time.Millisecond)
			return err
		})
	}
	check(group.Wait())

	out := bufio.NewWriter(os.Stdout)
	since := func(t time.Time) int64 { return t.Sub(start).Microseconds() }
	for client, acquisitions := range acquisitions {
		for _, a := range acquisitions {
			fmt.Fprintln(out, client, since(a.asked), since(a.granted), since(a.released))
		}
	}
	check(out.Flush())
}

type acquisition struct{ asked, granted, released time.Time }

func check(err error) {
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

// contend acquires, holds and releases until ctx is over.
func contend(ctx context.Context, locker locker, hold time.Duration) ([]acquisition, error) {
	var done []acquisition
	for ctx.Err() == nil {
		var a acquisition
		a.asked = time.Now()
		err := locker.acquire(ctx)
		if ctx.Err() != nil && err != nil {
			break // the end came while it waited
		}
		if err != nil {
			return nil, err
		}
		a.granted = time.Now()
		time.Sleep(hold)
		// What is held at the end is released all the same.
		if err := locker.release(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
		a.released = time.Now()
		done = append(done, a)
	}
	return done, nil
}
