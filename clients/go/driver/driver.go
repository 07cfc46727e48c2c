// Package driver is what redislock asks of a Redis library, so that a lock works over any of them.
//
// The package goredisdriver has the driver of go-redis, and the module rueidisdriver, beside this one, that of rueidis.
// A driver for another library implements [Driver], and is given to redislock.NewWith.
package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrNotSent is wrapped by a reply's error where the command surely did not reach a server.
var ErrNotSent = errors.New("redislock: there is no connection")

// A Driver sends commands to a server, a primary with its replicas, or a cluster. In a cluster it follows MOVED and ASK. It sends
// nothing twice: the caller does. It is safe for concurrent use.
type Driver interface {
	// Send sends commands that the server answers at once, in one pipeline where it can. It returns a reply for each. The user's own
	// commands must not be able to use up what it needs for that, because renewals and releases go this way.
	Send(ctx context.Context, commands ...Command) []Reply

	// Open returns a connection to the server that has a key, for one caller.
	Open(ctx context.Context, key string) (Conn, error)

	// Close closes the connections that the driver has made itself. The library's client is the user's, and stays open.
	Close() error
}

// A Conn is one connection, which nothing else uses until Release or Close. It is not safe for concurrent use. It never becomes
// another connection by itself once a command of it has been answered, except by following MOVED or ASK.
type Conn interface {
	// Send sends commands that the server may answer late. When ctx ends, Send returns and the connection is closed, so that the
	// server learns that nobody waits any more.
	Send(ctx context.Context, commands ...Command) []Reply

	// Release gives the connection back, to be used again if the last answers do not say that it is of no more use: core.Leaves.
	Release()

	// Close closes the connection. What is idle to the same server is not trusted any more either.
	Close()
}

// A Command is the words of a command. They are strings and integers, and in a user's own command whatever its library takes.
type Command struct {
	Args []any
	Key  int // the index of the first key, by which a cluster's client finds the server; 0: there is none
}

// FirstKey returns the first key, or nothing.
func (c Command) FirstKey() string {
	if c.Key == 0 {
		return ""
	}
	return fmt.Sprint(c.Args[c.Key])
}

// A Reply is what the server said.
type Reply struct {
	// Value is an int64, a string, a bool, a float64, a *big.Int, an []any, or a map of the library's. It is nil for null.
	Value any
	// Err is a [ServerError], such as [Error], if the server said so. Other errors say that there is no reply.
	Err error
}

// Failed returns a reply for each command that says that there is none.
func Failed(commands []Command, err error) []Reply {
	return slices.Repeat([]Reply{{Err: err}}, len(commands))
}

// Within returns what do returns, for a library that does not always look at ctx. If ctx ends before, Within returns its error, and what
// comes later is for late.
//
// A caller whose ctx has ended gives up what it may have got, and that must not reach the server before what do sends. So do is given a
// moment to end first. Only while it connects it takes longer, and sends nothing any more.
func Within[T any](ctx context.Context, do func() T, late func(T)) (value T, err error) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	select {
	case value = <-done:
		return value, nil
	case <-ctx.Done():
		select {
		case value = <-done:
			go late(value)
		case <-time.After(250 * time.Millisecond):
			go func() { late(<-done) }()
		}
		return value, context.Cause(ctx)
	}
}

// A ServerError is an error that the server has sent. Those of go-redis are.
type ServerError interface {
	error
	RedisError()
}

// An Error is a reply that is an error.
type Error string

func (e Error) Error() string { return string(e) }

// RedisError makes it a [ServerError].
func (Error) RedisError() {}

// Redirection reads MOVED and ASK: which server the error names, and whether it has to be told ASKING first.
func Redirection(err error) (addr string, asking, ok bool) {
	words := strings.Fields(fmt.Sprint(err))
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false, false
	}
	return words[2], words[0] == "ASK", true
}
