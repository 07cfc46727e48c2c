package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

const acquireOnce = "LOCK.ONCE"

// A Once is a result that one client makes, and that all others that want it get. Do not change it while it is used.
type Once struct {
	Client *Client
	Name   string        // the key of the result, an ordinary string
	Keep   time.Duration // how long the result lives, from 1 ms on
	Early  time.Duration // one that lives no longer is made again; at most half of Keep counts
	Delta  time.Duration // above 0: XFetch takes the place of Early. How long the result takes to make
	Beta   float64       // of XFetch: above 1 is earlier, below 1 later
	Expiry time.Duration // the ttl of the lock, which is renewed while the result is made
	Wait   time.Duration // how long Get waits for the result of another client
}

// Once returns a Once with the defaults.
func (c *Client) Once(name string) *Once {
	return &Once{
		Client: c, Name: name, Keep: time.Minute, Early: 10 * time.Second, Expiry: 30 * time.Second, Wait: 5 * time.Second,
	}
}

// Get returns the result. If there is none, one client makes it, and all others wait for that. If it ends soon, one client makes the
// next one, and all others get the old one, as that client does if its maker fails.
//
// The maker's context ends when its lock is lost. What it has made is then not stored, and only its own Get returns it. An error of the
// maker goes to its own Get, and the next client makes the result. A result that the server refuses for good, as without the right to
// SET, is returned with that error.
//
// It returns an [ErrTaken] if there is no result in time, an [ErrFailed] if ctx has ended, an [ErrModuleMissing] if the server has no
// module, and an [ErrUnsupported] if the module does not know LOCK.ONCE.
func (o *Once) Get(ctx context.Context, maker func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if o.Keep < time.Millisecond {
		return nil, fmt.Errorf("redislock: a result lives for at least 1ms (WithKeep), not %v", o.Keep)
	}
	early := o.early().Milliseconds()
	old, fresh, err := o.read(ctx, early)
	if err != nil || fresh {
		return old, err
	}
	lock := o.Client.Lock(lockOf(o.Name))
	lock.Command, lock.result, lock.early, lock.Expiry, lock.Wait = acquireOnce, o.Name, early, o.Expiry, o.Wait
	if old != nil {
		lock.Wait = 0 // The old one will do.
	}
	hold, err := lock.Acquire(ctx)
	switch lacks := errors.Is(err, ErrModuleMissing) || errors.Is(err, ErrUnsupported); {
	case err != nil && old != nil && !lacks:
		return old, nil
	case err != nil:
		return nil, err
	case hold.fence == 0:
		return hold.result, nil
	case hold.result != nil:
		old = hold.result
	}
	made, err := o.make(ctx, hold, maker)
	if made == nil && old != nil { // It may have ended since it was read.
		return old, nil
	}
	return made, err
}

// early is for how long a result lives at most that is to be made again.
func (o *Once) early() time.Duration {
	if o.Delta <= 0 {
		return min(o.Early, o.Keep/2)
	}
	// Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, 2015. Float64 is below 1, so the logarithm is
	// finite.
	drawn := -float64(o.Delta) * o.Beta * math.Log(1-rand.Float64())
	return time.Duration(min(max(drawn, 0), float64(o.Keep)))
}

// read returns the result, or nil, and whether it is not early. What passes is as no result: the acquire waits for its end.
func (o *Once) read(ctx context.Context, early int64) (value []byte, fresh bool, err error) {
	within, cancel := context.WithTimeout(ctx, Margin)
	defer cancel()
	replies := o.Client.Driver.Send(within, about("GET", o.Name), about("PTTL", o.Name))
	for _, reply := range replies {
		if ClassOf(reply) == Final {
			return nil, false, &RedisError{Err: reply.Err}
		}
	}
	text, found := replies[0].Value.(string)
	if !found {
		return nil, false, nil
	}
	left, known := replies[1].Value.(int64)
	return []byte(text), !known || left < 0 || left > early, nil
}

// make makes the result under the hold, stores it, and ends the hold. made is nil if the maker has failed.
func (o *Once) make(ctx context.Context, hold *Hold, maker func(ctx context.Context) ([]byte, error)) (made []byte, err error) {
	within, stop := hold.Keep(ctx)
	defer stop()
	defer func() { // Also if the maker panics.
		// The end of the caller's context does not keep the others waiting. Nor does a silent server keep the caller: the release goes on.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*Margin)
		defer cancel()
		if made == nil {
			_, _ = hold.Release(ctx)
		} else {
			err = o.store(ctx, hold, made)
		}
	}()
	result, err := maker(within)
	switch cause := context.Cause(within); {
	case err == nil:
		return append([]byte{}, result...), nil
	case errors.Is(cause, ErrNotHeld):
		return nil, fmt.Errorf("%w: %w", cause, err)
	}
	return nil, err
}

// store writes the result if the server still has the hold, and releases that, in one pipeline. It can be sent again: the second time
// finds no hold, and writes nothing.
func (o *Once) store(ctx context.Context, hold *Hold, made []byte) error {
	key := hold.lock.Names[0]
	set := about(execGuarded, key, hold.token, "SET", o.Name, string(made), "PX", o.Keep.Milliseconds())
	release := about("LOCK.RELEASE", key, hold.token)
	var stored driver.Reply
	released, _ := hold.insist(ctx, hold.finish(false), func(ctx context.Context) driver.Reply {
		replies := o.Client.send(ctx, o.Client.Driver, set, release)
		stored = replies[0]
		return replies[1]
	})
	if passes(released) {
		_, _ = hold.Release(ctx) // It goes on by itself.
	}
	if says(stored.Err, "NOTHELD") || isTaken(stored) || ClassOf(stored) != Final {
		return nil
	}
	return stored.Err
}

// hashTag finds the part of a name that chooses the slot of a cluster: what is in the first braces.
var hashTag = regexp.MustCompile(`^[^{]*\{[^}]+\}`)

// lockOf returns the key of a result's lock, in the same slot of a cluster. A name without a hash tag becomes one, so in a cluster it
// has no "}".
func lockOf(name string) string {
	if hashTag.MatchString(name) {
		return name + ":once"
	}
	return "{" + name + "}:once"
}

// resultIn takes a reply of LOCK.ONCE apart: the result, or nil, and a reply whose number is the fence, or 0.
func resultIn(reply driver.Reply) (result []byte, fence driver.Reply) {
	first, fence := reply.Value, reply
	if both, ok := first.([]any); ok && len(both) == 2 {
		first, fence.Value = both[0], both[1]
	}
	if text, ok := first.(string); ok {
		result = []byte(text)
	}
	return result, fence
}
