package core

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis-lock/redis-lock/clients/go/driver"
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

// A sender is a driver, or one of its connections.
type sender interface {
	Send(ctx context.Context, commands ...driver.Command) []driver.Reply
}

// falls tells whether locks are those of the fallback. The first answer of the server decides that; an error says that there is none yet.
func (c *Client) falls(ctx context.Context, key string) (bool, error) {
	if c.Fallback && c.falling.Load() == nil {
		within, cancel := context.WithTimeout(ctx, Margin)
		defer cancel()
		reply := c.Driver.Send(within, about("LOCK.INFO", key))[0]
		if passes(reply) {
			return false, &RedisError{Err: reply.Err}
		}
		without := lacks(reply.Err, "LOCK.INFO")
		if c.falling.CompareAndSwap(nil, &without) && without {
			slog.Warn("redislock: the server has no redis-lock module, so the fallback takes locks by SET NX PX: " + lost)
		}
	}
	falling := c.falling.Load()
	return falling != nil && *falling, nil
}

// send sends commands of a token over one of both, in the form of the fallback where that is the choice. Its errors are explained.
func (c *Client) send(ctx context.Context, over sender, commands ...driver.Command) []driver.Reply {
	asked := commands
	falls, err := c.falls(ctx, commands[0].FirstKey())
	if falls {
		asked, err = evals(commands)
	}
	if err != nil {
		return driver.Failed(commands, err)
	}
	replies := over.Send(ctx, asked...)
	for i, reply := range replies {
		if reply.Err != nil {
			replies[i].Err = c.explain(ctx, commands[i].Args[0].(string), commands[i].FirstKey(), reply.Err)
		}
	}
	return replies
}

// evals are commands in the form of the fallback. That has no options, such as LIMIT and LINGER: after the command there is a key, a token
// and a time at most.
func evals(commands []driver.Command) ([]driver.Command, error) {
	evals := make([]driver.Command, len(commands))
	for i, command := range commands {
		name, args := command.Args[0].(string), command.Args[1:]
		if scripts[name] == "" {
			return nil, notInFallback(name)
		}
		if len(args) > 3 {
			return nil, notInFallback(fmt.Sprint(name, " with ", args[3]))
		}
		evals[i] = driver.Command{Args: append([]any{"EVAL", scripts[name], 1}, args...), Key: 3}
	}
	return evals, nil
}

// notInFallback returns an error for what the fallback does not have. It is final, as if the server had said so.
func notInFallback(what string) error {
	return fmt.Errorf("%w: %w", ErrModuleMissing, driver.Error(what+" is not available in the fallback"))
}
