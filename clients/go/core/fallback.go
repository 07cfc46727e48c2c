package core

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// A choice is whether locks are the module's.
type choice int

const (
	undecided choice = iota
	theModule
	theFallback
)

// The scripts act only if the key is free or the token is still the caller's. A key of another type is somebody else's. So a request
// whose reply was lost can be sent again.
const ours = "redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1]"

// A grant has -1 in place of a fence.
var scripts = map[string]string{
	AcquireExclusive: "if " + ours + " then redis.call('pexpire', KEYS[1], ARGV[2]) return -1 end" +
		" if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -1 end return false",
	"LOCK.RENEW":   "if " + ours + " then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
	"LOCK.RELEASE": "if " + ours + " then return redis.call('del', KEYS[1]) end return 0",
	"LOCK.CHECK":   "if " + ours + " then return 1 end return 0",
}

// beyond is what the fallback does not have, by the word of a command that asks for it. Those that are commands an older module may lack,
// too.
var beyond = map[string]string{
	AcquireSeveral: "several locks in one step are", AcquireWriter: "a reader-writer lock is", AcquireShare: "a reader-writer lock is",
	"LIMIT": "a semaphore is", "LINGER": "WithLinger is", execGuarded: "a guarded command is", acquireOnce: "a result that is made once is",
}

// A sender is a driver, or one of its connections.
type sender interface {
	Send(ctx context.Context, commands ...driver.Command) []driver.Reply
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
	case !c.Fallback, class == Unheard, class == Temporary, class == Elsewhere, absent && beyond[command] != "":
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

// send sends commands of a token over one of both, in the form of the fallback where that is the choice.
func (c *Client) send(ctx context.Context, over sender, commands ...driver.Command) []driver.Reply {
	name := commands[0].Args[0].(string)
	if c.chosen() != theFallback {
		replies := over.Send(ctx, commands...)
		if c.choose(name, replies[0]) != theFallback {
			return replies
		}
	}
	evals := make([]driver.Command, len(commands))
	for i, command := range commands {
		for n, arg := range command.Args {
			if word, _ := arg.(string); beyond[word] != "" && (n == 0 || n > 3) { // What is between is a key, a token and a time.
				return driver.Failed(commands, notInFallback(beyond[word]))
			}
		}
		args := command.Args[1:min(len(command.Args), 4)]
		evals[i] = driver.Command{Args: append([]any{"EVAL", scripts[name], 1}, args...), Key: 3}
	}
	return over.Send(ctx, evals...)
}

// notInFallback returns an error for what the fallback does not have. It is final, as if the server had said so.
func notInFallback(what string) error {
	return fmt.Errorf("%w: %w", ErrModuleMissing, driver.Error(what+" not available in the fallback"))
}

// AtLeast returns an error if the server cannot keep a hold after its release.
func (c *Client) AtLeast() error {
	if c.chosen() == theFallback {
		return notInFallback("atLeast is")
	}
	return nil
}
