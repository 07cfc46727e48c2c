// Package rueidisdriver lets redislock work over a rueidis client.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	locks := redislock.NewWith(rueidisdriver.New(client))
//
// Servers with Sentinel and clusters are what the client makes of them.
//
// What answers at once goes through the client's pipeline, renewals and releases among them. What waits has a connection of the
// client's blocking pool to itself, and a hold with a linger keeps one until its end. So BlockingPoolSize (1024 unless set) is how many
// can wait at the same time.
package rueidisdriver

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/rueidis"
)

const maxHops = 3

// New returns a driver that uses client, which stays the caller's to close.
func New(client rueidis.Client) driver.Driver {
	return &library{client: client, open: map[*conn]bool{}}
}

type library struct {
	client rueidis.Client

	mu   sync.Mutex // of what follows
	open map[*conn]bool
}

func (l *library) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	built, err := build(l.client.B(), commands)
	if err != nil {
		return driver.Failed(commands, err)
	}
	if len(built) == 1 { // In older versions only Do follows ASK.
		return []driver.Reply{replyOf(l.client.Do(ctx, built[0]))}
	}
	return repliesOf(l.client.DoMulti(ctx, built...))
}

func (l *library) Open(ctx context.Context, _ string) (driver.Conn, error) {
	c := &conn{library: l}
	opened := make(chan struct{})
	go func() { // It waits while the blocking pool is empty, whatever ctx says.
		defer close(opened)
		c.client, c.release = l.client.Dedicate()
	}()
	select {
	case <-opened:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open[c] = true
		return c, nil
	case <-ctx.Done():
		go func() {
			<-opened
			c.release()
		}()
		return nil, fmt.Errorf("%w: %w", driver.ErrNotSent, context.Cause(ctx))
	}
}

// Close closes the connections that are in use. It does not wait for a server that is silent.
func (l *library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		go c.Close()
	}
	return nil
}

// conn is a connection of the blocking pool. In a cluster its first command finds the node.
type conn struct {
	library *library
	client  rueidis.DedicatedClient
	release func()
	failed  bool // the last reply was an error
	ended   sync.Once
}

func (c *conn) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	// With a deadline, rueidis would read until then and not look at a cancellation. Without one it looks.
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answers := make(chan []driver.Reply, 1)
	go func() { answers <- c.send(within, commands) }()
	select {
	case replies := <-answers:
		cancel()
		return replies
	case <-ctx.Done():
		cancel()
		go func() {
			<-answers
			c.Close()
		}()
		return driver.Failed(commands, context.Cause(ctx))
	}
}

func (c *conn) send(ctx context.Context, commands []driver.Command) []driver.Reply {
	built, err := build(c.client.B(), commands)
	if err != nil {
		return driver.Failed(commands, err)
	}
	replies := repliesOf(c.client.DoMulti(ctx, built...))
	for hops := 0; hops < maxHops; hops++ {
		addr, asking, ok := driver.Redirection(replies[0].Err)
		// In a cluster a dedicated connection stays at its node. An unknown node is known a moment later.
		node := c.library.client.Nodes()[addr]
		if !ok || node == nil || ctx.Err() != nil {
			break
		}
		c.release()
		c.client, c.release = node.Dedicate()
		if asking {
			c.client.Do(ctx, c.client.B().Arbitrary("ASKING").Build())
		}
		if built, err = build(c.client.B(), commands); err == nil {
			replies = repliesOf(c.client.DoMulti(ctx, built...))
		}
	}
	c.failed = replies[len(replies)-1].Err != nil
	return replies
}

// Release gives the connection back. rueidis then unsubscribes on it, and panics when a busy server answers that by an error. So one
// with an error is closed.
func (c *conn) Release() {
	if c.failed {
		c.Close()
		return
	}
	c.end(func() {})
}

func (c *conn) Close() { c.end(func() { c.client.Close() }) }

func (c *conn) end(first func()) {
	c.ended.Do(func() {
		c.library.mu.Lock()
		delete(c.library.open, c)
		c.library.mu.Unlock()
		first()
		c.release()
	})
}

// build makes commands whose keys the client finds the node by. What may wait says so.
func build(b rueidis.Builder, commands []driver.Command) ([]rueidis.Completed, error) {
	built := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		words := make([]string, len(command.Args))
		waits := false
		for n, arg := range command.Args {
			word, err := word(arg)
			if err != nil {
				return nil, err
			}
			words[n] = word
			waits = waits || word == "BLOCK" && command.Key > 0 && n > command.Key
		}
		key := command.Key
		made := b.Arbitrary(words[:max(key, 1)]...)
		if key > 0 {
			made = made.Keys(words[key])
			words = words[1:]
		}
		made = made.Args(words[max(key, 1):]...)
		if waits {
			built[i] = made.Blocking()
		} else {
			built[i] = made.Build()
		}
	}
	return built, nil
}

func repliesOf(results []rueidis.RedisResult) []driver.Reply {
	replies := make([]driver.Reply, len(results))
	for i, result := range results {
		replies[i] = replyOf(result)
	}
	return replies
}

func replyOf(result rueidis.RedisResult) driver.Reply {
	value, err := result.ToAny()
	if rueidis.IsRedisNil(err) {
		value, err = nil, nil
	}
	if errors.Is(err, rueidis.ErrClosing) {
		err = fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		err = driver.Error(reply.Error())
	}
	return driver.Reply{Value: value, Err: err}
}

// word writes an argument as go-redis does: numbers in decimal, booleans as 1 and 0, times in RFC 3339, durations in ns.
func word(arg any) (string, error) {
	switch arg := arg.(type) {
	case nil:
		return "", nil
	case []byte:
		return string(arg), nil
	case time.Time:
		return arg.Format(time.RFC3339Nano), nil
	case encoding.BinaryMarshaler:
		text, err := arg.MarshalBinary()
		return string(text), err
	}
	value := reflect.ValueOf(arg)
	switch {
	case value.Kind() == reflect.String:
		return value.String(), nil
	case value.Kind() == reflect.Bool:
		return map[bool]string{true: "1", false: "0"}[value.Bool()], nil
	case value.CanInt():
		return strconv.FormatInt(value.Int(), 10), nil
	case value.CanUint():
		return strconv.FormatUint(value.Uint(), 10), nil
	case value.CanFloat():
		return strconv.FormatFloat(value.Float(), 'f', -1, value.Type().Bits()), nil
	}
	return "", fmt.Errorf("redislock: %T is no argument of a command (implement encoding.BinaryMarshaler)", arg)
}
