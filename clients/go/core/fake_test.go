//go:build go1.25

package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// A fake is a driver and its server: it answers at once, or after a time of the bubble's clock.
type fake struct {
	mu       sync.Mutex
	begun    time.Time
	asked    []string // each command with the time since the beginning, in ms
	answers  []answer // what is answered first; then the commands succeed
	cut      bool     // all connections have ended, and there are no new ones
	silent   bool     // nothing is answered
	unbound  bool     // no connection is to be had, but what answers at once works
	open     int      // connections that are neither released nor closed
	released int
}

// An answer is for the next command of a name.
type answer struct {
	command string
	reply   driver.Reply
	after   time.Duration
}

var (
	ctx      = context.Background()
	errEnded = errors.New("the connection has ended")
	null     = driver.Reply{}
	granted  = driver.Reply{Value: int64(7)}
	broken   = driver.Reply{Err: io.EOF}
)

func (f *fake) one(ctx context.Context, command driver.Command) driver.Reply {
	name := fmt.Sprint(command.Args[0])
	f.mu.Lock()
	if f.cut {
		f.mu.Unlock()
		return driver.Reply{Err: io.EOF}
	}
	f.asked = append(f.asked, fmt.Sprint(strings.TrimPrefix(name, "LOCK."), "@", time.Since(f.begun).Milliseconds()))
	next := answer{reply: driver.Reply{Value: int64(1)}}
	if name == "LOCK.ACQUIRE" {
		next.reply = granted
	}
	for i, planned := range f.answers {
		if planned.command == name {
			next, f.answers = planned, append(f.answers[:i:i], f.answers[i+1:]...)
			break
		}
	}
	silent := f.silent
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
	}
	sleep(ctx, next.after)
	if ctx.Err() != nil {
		return driver.Reply{Err: context.Cause(ctx)}
	}
	return next.reply
}

func (f *fake) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	replies := make([]driver.Reply, len(commands))
	for i, command := range commands {
		replies[i] = f.one(ctx, command)
	}
	return replies
}

func (f *fake) Open(context.Context, string) (driver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut || f.unbound {
		return nil, driver.ErrNotSent
	}
	f.open++
	return &fakeConn{fake: f}, nil
}

func (f *fake) Close() error { return nil }

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// plan has the next commands be answered so.
func (f *fake) plan(answers ...answer) { f.set(func() { f.answers = append(f.answers, answers...) }) }

// connections is how many are neither released nor closed.
func (f *fake) connections() (open int) {
	f.set(func() { open = f.open })
	return open
}

// count is how often a command was sent.
func (f *fake) count(command string) int {
	return strings.Count(f.said(), strings.TrimPrefix(command, "LOCK.")+"@")
}

func (f *fake) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, " ")
}

type fakeConn struct {
	*fake
	once sync.Once
	dead atomic.Bool
}

func (c *fakeConn) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	if c.dead.Load() {
		return driver.Failed(commands, errEnded)
	}
	replies := c.fake.Send(ctx, commands...)
	if ctx.Err() != nil || errors.Is(replies[0].Err, io.EOF) {
		c.dead.Store(true)
	}
	return replies
}

func (c *fakeConn) Release() { c.once.Do(func() { c.set(func() { c.open--; c.released++ }) }) }
func (c *fakeConn) Close()   { c.once.Do(func() { c.set(func() { c.open-- }); c.dead.Store(true) }) }

// inBubble runs a test by a clock that moves only when all wait.
func inBubble(t *testing.T, test func(t *testing.T, f *fake, lock *Lock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{begun: time.Now()}
		lock := (&Client{Driver: f}).Lock("a")
		lock.Expiry = 30 * time.Second
		test(t, f, lock)
		f.set(func() { f.cut = true })
		time.Sleep(time.Hour) // All that is held ends.
	})
}

func acquired(t *testing.T, lock *Lock) *Hold {
	t.Helper()
	hold, err := lock.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// done checks what a method of a hold returned; without errors: that there is none.
func done(t *testing.T, want bool, wants ...error) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		if ok != want || err != nil && len(wants) == 0 {
			t.Fatalf("done: %v, %v", ok, err)
		}
		is(t, err, wants...)
	}
}

// is checks that an error is one of these.
func is(t *testing.T, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Fatalf("%v is no %v", err, want)
		}
	}
}

// ends waits for the end of a context, and returns after how many ms it came.
func ends(ctx context.Context) int64 {
	begun := time.Now()
	<-ctx.Done()
	return time.Since(begun).Milliseconds()
}
