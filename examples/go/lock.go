package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	// slice is the longest time that one command waits in the server. A connection that is dead without saying so is found out
	// after it.
	slice = 3 * time.Second
	// grace is how long the server keeps the place in the queue while no connection waits at it. It is longer than a reconnect
	// takes, and short, because a worker that died delays those behind it by this.
	grace = 5 * time.Second
	// margin is how much later the client gives up than the server answers.
	margin = time.Second
	// resendPause keeps a server that is down from being flooded.
	resendPause = 50 * time.Millisecond
)

var (
	errNotGranted = errors.New("not granted")
	errLost       = errors.New("lost")
)

// newClient returns the client for all that answers at once.
func newClient(s *settings) *redis.Client {
	options := *s.options
	// One connection for the work and one for the renewals: neither waits for the other.
	options.PoolSize = 2
	// A lost command can be sent again twice before the lease ends.
	options.ReadTimeout = s.ttl / 3
	options.WriteTimeout = options.ReadTimeout
	options.DialTimeout = options.ReadTimeout
	return newStrictClient(&options)
}

// newWaitingClient returns the client for the commands that wait in the server.
func newWaitingClient(s *settings) *redis.Client {
	options := *s.options
	// Its one connection is blocked most of the time.
	options.PoolSize = 1
	// go-redis knows of BLPOP that it may take long, but not of this command. A shorter wait has a deadline of its own.
	options.ReadTimeout = slice + margin
	return newStrictClient(&options)
}

func newStrictClient(options *redis.Options) *redis.Client {
	// Without it go-redis does not end a read at the context's deadline, which is the end of our lease.
	options.ContextTimeoutEnabled = true
	// We send again ourselves, for as long as it makes sense, which no number of times expresses.
	options.MaxRetries = -1
	options.DialerRetries = 1
	return redis.NewClient(options)
}

// acquire waits in the server's queue. Every command has the same token, so that asking again after a lost reply is no harm: who
// has the lock gets the same fence. Who leaves without the lock leaves no hold behind that it does not know of: it releases by
// another client, which answers at once.
func acquire(ctx context.Context, other *redis.Client, s *settings) (fence int64, err error) {
	client := newWaitingClient(s)
	defer client.Close()
	// A cancelled context does not end a read. Closing the client does, and leaves the queue.
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	left := false // something may be left in the server: a place in the queue, or a grant whose reply was lost
	defer func() {
		if err != nil && left {
			_ = client.Close() // nothing asks after the release
			giveBack(other, s)
		}
	}()

	command := "LOCK.ACQUIRE"
	if s.shared {
		command = "RWLOCK.RLOCK"
	}
	deadline := time.Now().Add(s.block)
	for ctx.Err() == nil {
		wait := min(time.Until(deadline), slice)
		args := []any{command, s.lock, s.token, s.ttl.Milliseconds()}
		if wait >= time.Millisecond { // BLOCK 0 would be for ever
			args = append(args, "BLOCK", wait.Milliseconds(), "KEEP", grace.Milliseconds())
			left = true
		}
		fence, err = ask(ctx, client, max(wait, 0)+margin, args)
		left = left || err != nil && !isReply(err)
		switch {
		case err == nil:
			return fence, nil
		case errors.Is(err, redis.Nil):
		case passes(err):
			log.Printf("asking again with the same token: %v", err)
			pause(ctx, resendPause)
		default:
			return 0, err
		}
		if time.Until(deadline) < time.Millisecond {
			return 0, errNotGranted
		}
	}
	return 0, ctx.Err()
}

// ask sends an acquire and gives its answer limit to arrive.
func ask(ctx context.Context, client *redis.Client, limit time.Duration, args []any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return client.Do(ctx, args...).Int64()
}

// giveBack leaves the queue, and releases what may have been granted without our knowing. A worker that gives up, or was told to
// stop, does not try for long.
func giveBack(client *redis.Client, s *settings) {
	if _, _, err := release(client, s, min(margin, s.ttl)); err != nil {
		log.Printf("the place may last until its grace is over, or the lock be held until its ttl is: %v", err)
	}
}

// release gives the lock back, and tries to for limit. Beyond the ttl it is no use, for the lock is free by itself. It tells how often it
// was sent, too: when the first reply was lost, the second is a 0 that means no harm.
func release(client *redis.Client, s *settings, limit time.Duration) (released, sent int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	released, err = resend(ctx, func() (int, error) {
		sent++
		return client.Do(ctx, "LOCK.RELEASE", s.lock, s.token).Int()
	})
	return released, sent, err
}

// underLease runs work with a context that ends with the lease, and renews the lease until work is done.
func underLease(ctx context.Context, client *redis.Client, s *settings, work func(context.Context, *lease) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errLost) {
			_ = client.Close() // ends also what is being read
		}
	})()
	lease := &lease{client: client, settings: s, cancel: cancel}
	// How long the grant had been on its way we do not know: the process may have been stopped before it read it. Of a renewal
	// we do, so the work begins after the first.
	lease.until = time.Now().Add(surely(s.ttl))
	lease.end = time.AfterFunc(surely(s.ttl), func() { cancel(fmt.Errorf("%w no renewal succeeded in time", errLost)) })
	defer lease.end.Stop()
	if err := lease.renew(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err) // the cause says more than "client is closed"
	}

	group, groupCtx := errgroup.WithContext(ctx)
	watch, done := context.WithCancel(groupCtx)
	group.Go(func() error { return lease.keep(watch) })
	group.Go(func() error {
		defer done()
		return work(groupCtx, lease)
	})
	err := group.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errRefused) {
		return cause // it says more than "context canceled"
	}
	return err
}

// A lease is the time for which we surely hold the lock, by our own monotonic clock.
type lease struct {
	client   *redis.Client
	settings *settings
	cancel   context.CancelCauseFunc

	mu    sync.Mutex // of what follows
	until time.Time
	end   *time.Timer
}

// keep renews at a third of the ttl, so that one lost renewal does no harm, until ctx ends.
func (l *lease) keep(ctx context.Context) error {
	ticks := time.NewTicker(l.settings.ttl / 3)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if err := l.renew(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// renew begins the lease anew, counted from before the renewal was sent. If it cannot be sent it is sent again until ctx ends.
func (l *lease) renew(ctx context.Context) error {
	var sent time.Time
	renewed, err := resend(ctx, func() (bool, error) {
		sent = time.Now()
		return l.client.Do(ctx, "LOCK.RENEW", l.settings.lock, l.settings.token, l.settings.ttl.Milliseconds()).Bool()
	})
	if err == nil && !renewed {
		err = fmt.Errorf("%w the server says that we do not hold it", errLost)
		l.cancel(err)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	until := sent.Add(surely(l.settings.ttl))
	if !l.end.Stop() || time.Now().After(until) {
		err := fmt.Errorf("%w the renewal came too late", errLost)
		l.cancel(err)
		return err
	}
	l.until = until
	l.end.Reset(time.Until(until))
	event("renewed")
	return nil
}

// surely is the part of a ttl that has not ended on the server either, whose clock may be faster by 1 %.
func surely(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}

// check is to be asked before every try of a write: after a stop of the process the timer that ends the lease may not have run yet.
func (l *lease) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		return nil
	}
	err := fmt.Errorf("%w the lease is over", errLost)
	l.cancel(err)
	return err
}

// resend repeats a command while the connection, and not the server, is what fails, until ctx ends.
func resend[T any](ctx context.Context, command func() (T, error)) (T, error) {
	for {
		reply, err := command()
		if err == nil || !passes(err) || ctx.Err() != nil {
			return reply, err
		}
		log.Printf("sending again: %v", err)
		pause(ctx, resendPause)
	}
}

// isReply tells whether an error is the server's answer, and not the lack of one.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// passes tells whether a failure is one of the connection, or the server says that the same will do later.
func passes(err error) bool {
	if !isReply(err) {
		return true
	}
	for _, code := range []string{"LOADING", "READONLY", "TRYAGAIN", "UNBLOCKED", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
