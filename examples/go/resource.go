package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

var errRefused = errors.New("refused")

// A resource is what the lock protects. It remembers the largest fence that wrote to it, and refuses a smaller one: that is
// what holds when this process was stopped between the look at its lease and the write.
type resource struct {
	client *redis.Client
	script *redis.Script
	*settings
	fence int64
}

// use writes, or reads, as often as it is told, as long as the lease lasts.
func (r *resource) use(ctx context.Context, lease *lease) error {
	for n := 1; n <= r.writes; n++ {
		if n > 1 {
			pause(ctx, r.rest)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		use := func() error { return r.write(ctx, lease, n) }
		if r.shared {
			use = func() error { return r.read(ctx, lease) }
		}
		if err := use(); err != nil {
			return err
		}
	}
	return nil
}

func (r *resource) write(ctx context.Context, lease *lease, n int) error {
	accepted, err := resend(ctx, func() (bool, error) {
		if err := lease.check(); err != nil {
			return false, err
		}
		return r.script.Run(ctx, r.client, []string{r.settings.resource}, r.fence, r.token).Bool()
	})
	if err != nil {
		return err
	}
	if !accepted {
		return errRefused
	}
	event("wrote %d", n)
	return nil
}

func (r *resource) read(ctx context.Context, lease *lease) error {
	value, err := resend(ctx, func() (string, error) {
		if err := lease.check(); err != nil {
			return "", err
		}
		return r.client.HGet(ctx, r.settings.resource, "writes").Result()
	})
	if errors.Is(err, redis.Nil) {
		value, err = "0", nil
	}
	if err != nil {
		return err
	}
	event("read %s", value)
	return nil
}
