// Package core is the lock without a Redis library and without redsync's names: an acquire loop, a hold with its lease, and a keeper
// that renews it. The package redislock has the same under redsync's names.
//
//	client := &core.Client{Driver: rueidisdriver.New(rueidisClient)}
//	lock := client.Lock("jobs:42")
//	hold, err := lock.Acquire(ctx)
package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// ErrFailed is returned by an acquire whose context ended before the lock was granted. The context's error and its cause are wrapped.
var ErrFailed = errors.New("redislock: failed to acquire lock")

// ErrNotHeld says that the lock is no longer held: its lease is over, or the server says so.
var ErrNotHeld = errors.New("redislock: the lock is not held, or not any more")

// ErrCancelled is returned by an acquire whose wait somebody has ended by LOCK.CANCEL. What the server said is wrapped.
var ErrCancelled = errors.New("redislock: the wait was cancelled")

// ErrExpiry is wrapped where the server's setting lock.max-ttl is shorter than the expiry. What the server said is wrapped.
var ErrExpiry = errors.New("redislock: the expiry (WithExpiry, atMost of RunOnce, or WithTTL of Once) is too long")

// ErrUnsupported is wrapped where the server does not know the command of what was asked. The text names it.
var ErrUnsupported = errors.New("redislock: the server does not know the command")

// ErrModuleMissing is wrapped where the server has no redis-lock module. The text says how to load it, and what the fallback offers
// where it cannot be loaded.
var ErrModuleMissing = errors.New("redislock: the server has no redis-lock module")

// ErrTaken is returned, as a pointer, when somebody else holds the lock.
type ErrTaken struct {
	// Nodes is always [0]: there is one server. It is here because redsync has it.
	Nodes []int
}

func (err ErrTaken) Error() string {
	return fmt.Sprintf("redislock: lock already taken, locked nodes: %v", err.Nodes)
}

// Is lets errors.Is(err, &ErrTaken{}) find an ErrTaken whatever its nodes.
func (err ErrTaken) Is(target error) bool {
	_, is := target.(*ErrTaken)
	return is
}

// A RedisError is an answer of the server that is an error, or the failure to get one.
type RedisError struct {
	// Node is always 0: there is one server.
	Node int
	Err  error
}

func (e RedisError) Error() string { return fmt.Sprintf("redislock: %s", e.Err) }

// Unwrap returns what happened.
func (e RedisError) Unwrap() error { return e.Err }

// A Class is what a reply means for the one who asked.
type Class int

const (
	// Final: the same request will always fail. Every error word that is not in the table is final.
	Final Class = iota
	// Answered: the server has decided.
	Answered
	// Null: the server has nothing for the caller, because somebody else has it.
	Null
	// Temporary: the same request will do later.
	Temporary
	// Elsewhere: the same request will do at the server that is responsible now.
	Elsewhere
	// Unheard: there is no reply. The server may have executed the request.
	Unheard
)

// words is the table of clients/vectors/errors.txt, without those that are final.
var words = map[string]Class{
	"LOADING": Temporary, "BUSY": Temporary, "MISCONF": Temporary, "NOREPLICAS": Temporary, "TRYAGAIN": Temporary, "OOM": Temporary,
	"CLUSTERDOWN": Temporary, "UNBLOCKED": Temporary,
	"MASTERDOWN": Elsewhere, "READONLY": Elsewhere, "MOVED": Elsewhere, "ASK": Elsewhere,
}

// ClassOf returns the class of a reply.
func ClassOf(reply driver.Reply) Class {
	switch {
	case reply.Err == nil && reply.Value == nil:
		return Null
	case reply.Err == nil:
		return Answered
	}
	if said := said(reply.Err); said != nil {
		word, _, _ := strings.Cut(said.Error(), " ")
		return words[word]
	}
	return Unheard
}

// passes tells whether the same request may get another answer later: the server has not decided, or nobody has heard it.
func passes(reply driver.Reply) bool { return ClassOf(reply) >= Temporary }

// Leaves tells whether a connection is of no more use after a reply: the next one asks anew who the server is. A driver closes it then.
func Leaves(reply driver.Reply) bool {
	class := ClassOf(reply)
	return class == Unheard || class == Elsewhere || says(reply.Err, "UNBLOCKED") || says(reply.Err, "CLUSTERDOWN")
}

// isTaken tells whether somebody else has the key: another token, or an old client by a value of another type.
func isTaken(reply driver.Reply) bool { return ClassOf(reply) == Null || says(reply.Err, "WRONGTYPE") }

// number is the number in a reply, or 0.
func number(reply driver.Reply) int64 {
	n, _ := reply.Value.(int64)
	return n
}

// said is the server's reply in an error; nil: there is none.
func said(err error) (reply driver.ServerError) {
	errors.As(err, &reply)
	return reply
}

// says tells whether err is a reply of the server that begins with these words.
func says(err error, words string) bool {
	said := said(err)
	return said != nil && strings.HasPrefix(strings.TrimPrefix(said.Error(), "ERR "), words)
}

// notSent tells whether a request surely did not reach the server.
func notSent(err error) bool {
	var failure *net.OpError
	return errors.Is(err, driver.ErrNotSent) || errors.As(err, &failure) && failure.Op == "dial"
}

// ended is the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

var (
	unknownCommand = regexp.MustCompile(`(?i)unknown (redis )?command|not (available|supported)|unsupported`)
	quoted         = regexp.MustCompile("['\"`]([^'\"`]*)['\"`]")
)

// lacks tells whether the server does not know a command of ours, in the words of any server or proxy. A text that quotes another
// command first speaks of that one.
func lacks(err error, command string) bool {
	if ClassOf(driver.Reply{Err: err}) != Final || !unknownCommand.MatchString(err.Error()) {
		return false
	}
	name := quoted.FindStringSubmatch(err.Error())
	return name == nil || strings.EqualFold(name[1], command)
}

// lost is what a lock without the module does not have.
const lost = "no fair queue, no fence, no readers and writers, no counted or several locks, no guarded commands, no results made once, and a" +
	" clock that an eviction or a failover can cut short"

// explain says in the error of a command which command the server does not know, that there is no module, or that it grants no lease
// so long, if that is the error. Anything else is a [RedisError].
func (c *Client) explain(ctx context.Context, command, key string, err error) error {
	wrapped := error(&RedisError{Err: err})
	switch {
	case says(err, "ttl must not be above lock.max-ttl"):
		return fmt.Errorf("%w: %w", ErrExpiry, wrapped)
	case !lacks(err, command):
		return wrapped
	case beyond[command] != "" && !lacks(c.Driver.Send(ctx, about("LOCK.INFO", key))[0].Err, "LOCK.INFO"):
		return fmt.Errorf("%w %s: %w", ErrUnsupported, command, wrapped)
	}
	return fmt.Errorf("%w. Load it by `loadmodule /path/libredis_lock.so` in the server's configuration, and restart the server. Where"+
		" modules cannot be loaded, the option redislock.WithFallback takes locks by SET NX PX, with less: %s: %w", ErrModuleMissing, lost, wrapped)
}
