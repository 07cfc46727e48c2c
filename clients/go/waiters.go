package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// waiters cut a wait into commands that wait in the server.
type waiters struct {
	driver driver.Driver
	slice  time.Duration // the longest time that one command waits
}

var errNoServer = errors.New("only a redis.Client or a redis.ClusterClient can wait")

// margin is how much later than the server a wait ends here, when the server is silent.
const margin = time.Second

// ask sends an acquire with BLOCK, for at most wait, slice and what is left of ctx. It says KEEP
// where there is a grace. A wait of 0 sends the acquire as it is.
func (w *waiters) ask(ctx context.Context, wait, grace time.Duration, acquire driver.Command) (int64, driver.Bound, error) {
	if wait < time.Millisecond {
		return w.do(ctx, 0, acquire)
	}
	wait = min(wait, w.slice)
	if deadline, ok := ctx.Deadline(); ok {
		// A little less, so that the server's answer comes before the connection is closed.
		left := time.Until(deadline)
		wait = min(wait, left-min(left/10, 20*time.Millisecond))
	}
	wait = max(wait, time.Millisecond) // BLOCK 0 would be for ever
	acquire.Args = append(acquire.Args, "BLOCK", wait.Milliseconds())
	if grace > 0 {
		acquire.Args = append(acquire.Args, "KEEP", max(grace.Milliseconds(), 1))
	}
	return w.do(ctx, wait, acquire)
}

// do sends a command which waits in the server for wait at most. It ends it, with its connection, when ctx ends, or when there is
// no answer a margin after the server should have given one. If the command binds, its connection is returned.
func (w *waiters) do(ctx context.Context, wait time.Duration, command driver.Command) (int64, driver.Bound, error) {
	answering, cancel := context.WithTimeout(ctx, wait+margin)
	defer cancel()
	reply, bound := w.driver.Wait(answering, command)
	if reply.Err != nil && ctx.Err() != nil {
		return 0, nil, ctx.Err()
	}
	number, err := numberIn(reply)
	if err != nil && bound != nil { // Nothing was granted.
		bound.Release()
		bound = nil
	}
	return number, bound, err
}

// numberIn reads a number. Null is [redis.Nil].
func numberIn(reply driver.Reply) (int64, error) {
	if reply.Err != nil {
		return 0, reply.Err
	}
	number, ok := reply.Value.(int64)
	if !ok {
		return 0, redis.Nil
	}
	return number, nil
}
