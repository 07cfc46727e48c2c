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
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/rueidis"
)

// maxHops is how many redirections of a cluster one command follows: what the client knew may be old, and the slot may be moving.
const maxHops = 3

// New returns a driver that uses client, which stays the caller's to close.
func New(client rueidis.Client) driver.Driver {
	return &library{client: client}
}

type library struct {
	client rueidis.Client
	open   sync.Map    // of the connections in use
	failed atomic.Bool // one of the last replies was an error
}

func (l *library) Send(ctx context.Context, commands ...driver.Command) (replies []driver.Reply) {
	defer func() { l.note(replies) }()
	do := func() []driver.Reply { return send(ctx, l.client, commands) }
	if !l.failed.Load() { // A goroutine for each request would cost half as much again.
		return do()
	}
	replies, err := driver.Within(ctx, do, func([]driver.Reply) {}) // While it connects, rueidis does not look at ctx.
	if err != nil {
		return driver.Failed(commands, err)
	}
	return replies
}

// note keeps in mind and returns whether there was an error, after which the client may have to connect.
func (l *library) note(replies []driver.Reply) bool {
	failed := slices.ContainsFunc(replies, func(reply driver.Reply) bool { return reply.Err != nil })
	l.failed.Store(failed)
	return failed
}

func (l *library) Open(ctx context.Context, _ string) (driver.Conn, error) {
	dedicated := func() *conn { // It waits while the blocking pool is empty, whatever ctx says.
		c := &conn{library: l}
		c.client, c.release = l.client.Dedicate()
		l.open.Store(c, true)
		return c
	}
	c, err := driver.Within(ctx, dedicated, (*conn).Release)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	return c, nil
}

// Close closes the connections that are in use. It does not wait for a server that is silent.
func (l *library) Close() error {
	for c := range l.open.Range {
		c.(*conn).Close()
	}
	return nil
}

// conn is a connection of the blocking pool. In a cluster its first command finds the node.
type conn struct {
	library *library
	client  rueidis.DedicatedClient
	release func()
	failed  atomic.Bool // one of the last replies was an error, so it is not used again
}

func (c *conn) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	// With a deadline, rueidis would read until then and not look at a cancellation. Without one it looks, but not while it connects.
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	send := func() []driver.Reply { return c.send(within, commands) }
	replies, err := driver.Within(ctx, send, func([]driver.Reply) { c.Close() })
	if err != nil {
		replies = driver.Failed(commands, err)
	}
	c.failed.Store(c.library.note(replies))
	return replies
}

func (c *conn) send(ctx context.Context, commands []driver.Command) []driver.Reply {
	replies := send(ctx, c.client, commands)
	for range maxHops {
		addr, asking, _ := driver.Redirection(replies[0].Err)
		// In a cluster a dedicated connection stays at its node. An unknown node is known a moment later.
		node := c.library.client.Nodes()[addr]
		if node == nil || ctx.Err() != nil {
			break
		}
		c.release()
		c.client, c.release = node.Dedicate()
		if asking {
			c.client.Do(ctx, c.client.B().Arbitrary("ASKING").Build())
		}
		replies = send(ctx, c.client, commands)
	}
	return replies
}

// Release gives the connection back. rueidis then unsubscribes on it, and panics when a busy server answers that by an error. So one with
// an error is closed, which may take as long as to connect.
func (c *conn) Release() {
	switch _, open := c.library.open.LoadAndDelete(c); {
	case open && c.failed.Load():
		go func() {
			c.client.Close()
			c.release()
		}()
	case open:
		c.release()
	}
}

func (c *conn) Close() {
	c.failed.Store(true)
	c.Release()
}

// send sends commands once. Their keys tell the client the node, and what may wait says so.
func send(ctx context.Context, client rueidis.CoreClient, commands []driver.Command) []driver.Reply {
	built := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		words := make([]string, len(command.Args))
		for n, arg := range command.Args {
			var err error
			if words[n], err = word(arg); err != nil {
				return driver.Failed(commands, err)
			}
		}
		begin, end := max(command.Key, 1), command.Key+1 // of the key; without one they are equal
		made := client.B().Arbitrary(words[:begin]...).Keys(words[begin:end]...).Args(words[end:]...)
		if slices.Contains(words[end:], "BLOCK") {
			built[i] = made.Blocking()
		} else {
			built[i] = made.Build()
		}
	}
	if len(built) == 1 { // In older versions only Do follows ASK.
		return []driver.Reply{replyOf(client.Do(ctx, built[0]))}
	}
	replies := make([]driver.Reply, len(built))
	for i, result := range client.DoMulti(ctx, built...) {
		replies[i] = replyOf(result)
	}
	return replies
}

func replyOf(result rueidis.RedisResult) driver.Reply {
	value, err := result.ToAny()
	said, is := rueidis.IsRedisErr(err)
	switch {
	case rueidis.IsRedisNil(err):
		err = nil
	case is:
		err = driver.Error(said.Error())
	case errors.Is(err, rueidis.ErrClosing):
		err = fmt.Errorf("%w: %w", driver.ErrNotSent, err)
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
	case value.CanInt(), value.CanUint():
		return fmt.Sprintf("%d", arg), nil
	case value.CanFloat():
		return strconv.FormatFloat(value.Float(), 'f', -1, value.Type().Bits()), nil
	}
	return "", fmt.Errorf("redislock: %T is no argument of a command (implement encoding.BinaryMarshaler)", arg)
}
