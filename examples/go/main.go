// Command worker does a piece of work under a lock: it waits for the lock in the server, keeps it alive while the work runs,
// sends the fence with every write, stops at once when the lock is lost, and releases it. README.md says why it is done so.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// What the exit status tells.
const (
	exitDone = iota
	exitTrouble
	exitNotGranted
	exitLost
)

type settings struct {
	options    *redis.Options
	lock       string
	resource   string
	token      string
	ttl, block time.Duration
	writes     int
	rest       time.Duration
	shared     bool
}

func main() {
	log.SetFlags(log.Lmicroseconds)
	settings, err := parse(os.Args[1:])
	if err != nil {
		log.Print(err)
		os.Exit(exitTrouble)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := work(ctx, settings)
	if err != nil {
		log.Print(err)
	}
	os.Exit(status)
}

func parse(args []string) (*settings, error) {
	if len(args) == 0 || args[0] != "go-redis" {
		return nil, errors.New("usage: run go-redis --url URL --lock KEY --resource KEY --ttl MS --block MS --writes N --pause MS [--shared] [--token T]")
	}
	s := &settings{}
	flags := flag.NewFlagSet("go-redis", flag.ContinueOnError)
	url := flags.String("url", "redis://127.0.0.1:6379", "the server")
	flags.StringVar(&s.lock, "lock", "lock:stock", "the lock's key")
	flags.StringVar(&s.resource, "resource", "stock", "the key that the lock protects")
	flags.StringVar(&s.token, "token", newToken(), "who holds the lock; by default a new one")
	ttl := flags.Int("ttl", 10_000, "how long the lock is held if it is not renewed, in ms")
	block := flags.Int("block", 30_000, "how long to wait for the lock, in ms")
	flags.IntVar(&s.writes, "writes", 10, "how often to write, or to read with --shared")
	pause := flags.Int("pause", 100, "the time after each, in ms")
	flags.BoolVar(&s.shared, "shared", false, "hold the lock with other readers")
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	s.ttl, s.block, s.rest = milliseconds(*ttl), milliseconds(*block), milliseconds(*pause)
	var err error
	s.options, err = redis.ParseURL(*url)
	return s, err
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func newToken() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		log.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// work does all of it and returns the exit status.
func work(ctx context.Context, s *settings) (int, error) {
	script, err := resourceScript()
	if err != nil {
		return exitTrouble, err
	}
	client := newClient(s)
	defer client.Close()

	fence, err := acquire(ctx, client, s)
	if errors.Is(err, errNotGranted) {
		event("gave-up")
		return exitNotGranted, nil
	}
	if err != nil {
		return exitTrouble, err
	}
	event("granted %d", fence)

	resource := &resource{client: client, script: script, settings: s, fence: fence}
	err = underLease(ctx, client, s, resource.use)
	switch {
	case errors.Is(err, errRefused):
		event("refused %d", fence)
		return exitLost, nil
	case errors.Is(err, errLost):
		event("%v", err)
		return exitLost, nil
	case err != nil:
		// Whatever it was, nobody shall wait for the rest of our ttl.
		_, _, releaseErr := release(client, s, s.ttl)
		return exitTrouble, errors.Join(err, releaseErr)
	}
	released, sent, err := release(client, s, s.ttl)
	if err != nil {
		return exitTrouble, err
	}
	event("released %d", released)
	if released == 0 && sent == 1 {
		return exitLost, nil
	}
	return exitDone, nil
}

// event tells, on a line of its own, what has happened. Stdout has no buffer.
func event(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// resourceScript reads the script that all the languages' workers share, from beside the folder of this one.
func resourceScript() (*redis.Script, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(filepath.Join(filepath.Dir(program), "..", "..", "resource.lua"))
	if err != nil {
		return nil, err
	}
	return redis.NewScript(string(source)), nil
}
