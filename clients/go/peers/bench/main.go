// Command bench has clients contend for one lock, by this client or a peer, and prints when each acquisition was asked for,
// granted and released: CLIENT ASKED_US GRANTED_US RELEASED_US. When the clock starts, it says start on stderr.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type acquisition struct{ asked, granted, released time.Time }

func run() error {
	if len(os.Args) > 1 && os.Args[1] == "--list" {
		for _, library := range libraries {
			fmt.Println(library.name)
		}
		return nil
	}
	if len(os.Args) < 2 {
		return errors.New("usage: bench LIBRARY --url URL --lock KEY --clients N --hold-ms H --seconds S, or bench --list")
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	url := flags.String("url", "redis://127.0.0.1:6379", "the server")
	key := flags.String("lock", "lock:bench", "the lock's key")
	clients := flags.Int("clients", 1, "how many contend")
	hold := flags.Int("hold-ms", 0, "how long each holds the lock")
	seconds := flags.Float64("seconds", 1, "how long it goes on")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	connect, err := library(os.Args[1])
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(*url)
	if err != nil {
		return err
	}

	// One go-redis client, as a program has, with a connection for each of ours from the beginning.
	options.PoolSize, options.MinIdleConns = *clients, *clients
	client := redis.NewClient(options)
	defer client.Close()
	ctx := context.Background()
	lockers := make([]locker, *clients)
	locks := connect(client, *key)
	for i := range lockers {
		lockers[i] = locks()
	}
	if err := warmUp(ctx, client, *clients); err != nil {
		return err
	}

	start := time.Now()
	fmt.Fprintln(os.Stderr, "start")
	ctx, cancel := context.WithDeadline(ctx, start.Add(time.Duration(*seconds*float64(time.Second))))
	defer cancel()
	acquisitions := make([][]acquisition, *clients)
	var group errgroup.Group
	for i := range lockers {
		group.Go(func() (err error) {
			acquisitions[i], err = contend(ctx, lockers[i], time.Duration(*hold)*time.Millisecond)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}

	out := bufio.NewWriter(os.Stdout)
	since := func(t time.Time) int64 { return t.Sub(start).Microseconds() }
	for client, acquisitions := range acquisitions {
		for _, a := range acquisitions {
			fmt.Fprintln(out, client, since(a.asked), since(a.granted), since(a.released))
		}
	}
	return out.Flush()
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

// warmUp opens the connections.
func warmUp(ctx context.Context, client *redis.Client, connections int) error {
	var group errgroup.Group
	for i := 0; i < connections; i++ {
		group.Go(func() error { return client.Ping(ctx).Err() })
	}
	return group.Wait()
}
