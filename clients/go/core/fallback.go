package core

import (
	"context"
	"fmt"
	"log/slog"
	mathrand "math/rand"
	"strings"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// A choice is whether locks are the module's.
type choice int

const (
	undecided choice = iota
	theModule
	theFallback
)

// The scripts act only if the token is still the caller's. A key of another type is somebody else's.
const (
	ours         = "redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1]"
	shortestPoll = 25 * time.Millisecond
	longestPoll  = 75 * time.Millisecond
)

var scripts = map[string]string{
	"LOCK.RENEW":   "if " + ours + " then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
	"LOCK.RELEASE": "if " + ours + " then return redis.call('del', KEYS[1]) end return 0",
	"LOCK.CHECK":   "if " + ours + " then return 1 end return 0",
}

func (c *Client) chosen() choice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.choice
}

// choose notes what an answer to one of the module's commands tells: whether the server has the module. The first one counts.
func (c *Client) choose(command string, reply driver.Reply) choice {
	absent := lacks(reply.Err, command)
	switch class := ClassOf(reply); {
	case !c.Fallback, class == Unheard, class == Temporary, class == Elsewhere, absent && command == execGuarded:
		return c.chosen() // It tells nothing, or it need not be known.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.choice != undecided {
		return c.choice
	}
	c.choice = theModule
	if absent {
		c.choice = theFallback
		slog.Warn("redislock: the server has no redis-lock module, so the fallback takes locks by SET NX PX: " + lost)
	}
	return c.choice
}

// send sends commands that only the holder's token succeeds with, in the form of the fallback where that is the choice.
func (c *Client) send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	if c.chosen() != theFallback {
		replies := c.Driver.Send(ctx, commands...)
		if c.choose(fmt.Sprint(commands[0].Args[0]), replies[0]) != theFallback {
			return replies
		}
	}
	evals := make([]driver.Command, len(commands))
	for i, command := range commands {
		script := scripts[fmt.Sprint(command.Args[0])]
		evals[i] = driver.Command{Args: append([]any{"EVAL", script, 1}, command.Args[1:]...), Key: 3}
	}
	return c.Driver.Send(ctx, evals...)
}

// notInFallback returns an error for what the fallback does not have.
func notInFallback(what string) error {
	return fmt.Errorf("%w: %s not available in the fallback", ErrModuleMissing, what)
}

// AtLeast returns an error if the server cannot keep a hold after its release.
func (c *Client) AtLeast() error {
	if c.chosen() == theFallback {
		return notInFallback("atLeast is")
	}
	return nil
}

// beyondFallback tells what this lock has and the fallback does not.
func (l *Lock) beyondFallback() string {
	switch {
	case l.Command == AcquireSeveral:
		return "several locks in one step are"
	case l.Limit > 0:
		return "a semaphore is"
	case strings.HasPrefix(l.Command, "RWLOCK."):
		return "a reader-writer lock is"
	case l.Lingers:
		return "WithLinger is"
	}
	return ""
}

// takeString takes the lock by a string. It polls until the lock is granted, the wait or ctx is over, or an error is final.
func (l *Lock) takeString(ctx context.Context, token string, wait time.Duration) (*Hold, error) {
	if what := l.beyondFallback(); what != "" {
		return nil, notInFallback(what)
	}
	unsure := false // the server may have a hold of ours
	for deadline := time.Now().Add(wait); ; {
		hold := newHold(l, token, time.Now())
		reply := l.askString(ctx, hold, unsure)
		class := ClassOf(reply)
		if class == Answered && number(reply) == 0 {
			if time.Now().Before(hold.end()) {
				hold.begin(ctx)
				return hold, nil
			}
			unsure, reply.Value, class = true, nil, Null // The lease was over when its grant was heard.
		}
		unsure = unsure || class == Unheard && !notSent(reply.Err)
		over, err := time.Until(deadline) < time.Millisecond, error(&RedisError{Err: reply.Err})
		switch {
		case ctx.Err() != nil:
			over, err = true, fmt.Errorf("%w: %w", ErrFailed, ended(ctx))
		case isTaken(reply):
			err = taken()
		case class == Final:
			over = true
		}
		if over {
			if unsure {
				(&attempt{Lock: l, token: token}).giveBack(ctx)
			}
			return nil, err
		}
		poll := shortestPoll + time.Duration(mathrand.Int63n(int64(longestPoll-shortestPoll)))
		sleep(ctx, min(poll, time.Until(deadline)))
	}
}

// askString asks once. A hold whose reply was lost is had by its token.
func (l *Lock) askString(ctx context.Context, hold *Hold, unsure bool) driver.Reply {
	within, cancel := context.WithTimeout(ctx, Margin)
	defer cancel()
	expiry := l.Expiry.Milliseconds()
	reply := l.Client.Driver.Send(within, about("SET", l.Names[0], hold.token, "NX", "PX", expiry))[0]
	if ClassOf(reply) != Null || !unsure {
		return reply
	}
	hold.sent = time.Now()
	reply = l.Client.send(within, hold.commands("LOCK.RENEW", expiry)...)[0]
	if ClassOf(reply) == Answered {
		reply.Value = map[bool]any{true: "OK", false: nil}[number(reply) == 1]
	}
	return reply
}
