package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// waiters are the connections that commands wait on: each a go-redis client with a single connection, for go-redis gives a command
// of its user neither a read time-out of its own nor a way to end it. A context's cancellation does not reach a read, but closing
// the client does.
type waiters struct {
	client redis.UniversalClient
	slice  time.Duration // the longest time that one command waits: what a dead connection costs

	placeless atomic.Bool // the server's module is one of 0.1, which keeps no places

	mu    sync.Mutex // of what follows
	idle  map[string][]*redis.Client
	bound map[*redis.Client]bool // connections that holds depend on
	over  bool
}

var errNoServer = errors.New("only a redis.Client or a redis.ClusterClient can wait")

// margin is how much later than the server a wait ends here, when the server is silent.
const margin = time.Second

// maxIdle is how many connections per server are kept for the next wait.
const maxIdle = 64

func newWaiters(client redis.UniversalClient, slice time.Duration) *waiters {
	return &waiters{client: client, slice: slice, idle: map[string][]*redis.Client{}, bound: map[*redis.Client]bool{}}
}

// ask sends an acquire with BLOCK, for at most wait, slice and what is left of ctx. It says KEEP
// where there is a grace and the server knows the word. A wait of 0 sends the acquire as it is.
func (w *waiters) ask(ctx context.Context, wait, grace time.Duration, r request) (int64, *redis.Client, error) {
	if wait < time.Millisecond {
		return w.do(ctx, 0, r)
	}
	wait = min(wait, w.slice)
	if deadline, ok := ctx.Deadline(); ok {
		// A little less, so that the server's answer comes before the connection is closed.
		left := time.Until(deadline)
		wait = min(wait, left-min(left/10, 20*time.Millisecond))
	}
	wait = max(wait, time.Millisecond) // BLOCK 0 would be for ever
	r.args = append(r.args, "BLOCK", wait.Milliseconds())
	if grace <= 0 || w.placeless.Load() {
		return w.do(ctx, wait, r)
	}
	kept := r
	kept.args = append(slices.Clip(r.args), "KEEP", max(grace.Milliseconds(), 1))
	fence, bound, err := w.do(ctx, wait, kept)
	if !redis.HasErrorPrefix(err, "unknown option") || missing(err, r.options) != "" {
		return fence, bound, err
	}
	if w.placeless.CompareAndSwap(false, true) {
		slog.Warn("redislock: the server's module does not know KEEP (it is of 0.1), so a waiter loses its place in the queue" +
			" at the end of each slice and with its connection")
	}
	return w.do(ctx, wait, r)
}

// do sends a command which waits in the server for wait at most. It ends it, by closing its connection, when ctx ends, or when there is
// no answer a margin after the server should have given one. If the request binds, its connection is returned: for unbind.
func (w *waiters) do(ctx context.Context, wait time.Duration, r request) (int64, *redis.Client, error) {
	// One connection has many waits, so this is the command's deadline and not the connection's time-out.
	answering, cancel := context.WithTimeout(ctx, wait+margin)
	defer cancel()
	client, err := w.get(answering, fmt.Sprint(r.args[r.key]))
	if err != nil {
		return 0, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	reply, err := client.Do(answering, r.args...).Int64()
	if !stop() {
		return 0, nil, ctx.Err()
	}
	if err != nil && (!answered(err) || passes(err)) {
		// The next one asks anew who the server is.
		_ = client.Close()
		if cluster, ok := w.client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
		}
		return 0, nil, err
	}
	if err == nil && r.binds {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bound[client] = true
		return reply, client, nil
	}
	w.put(client)
	return reply, nil, err
}

// unbind takes a connection back on which no hold depends any more.
func (w *waiters) unbind(client *redis.Client) {
	w.mu.Lock()
	delete(w.bound, client)
	w.mu.Unlock()
	w.put(client)
}

// get returns an idle connection, or a new one, to the server that has the key.
func (w *waiters) get(ctx context.Context, key string) (*redis.Client, error) {
	var options redis.Options
	switch client := w.client.(type) {
	case *redis.Client:
		options = *client.Options()
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		options = *node.Options()
	default:
		return nil, fmt.Errorf("%w: %T", errNoServer, client)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if idle := w.idle[options.Addr]; len(idle) > 0 {
		last := len(idle) - 1
		w.idle[options.Addr] = idle[:last]
		return idle[last], nil
	}
	options.PoolSize, options.MinIdleConns = 1, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0 // a hold may depend on it
	options.ReadTimeout = w.slice + margin                   // of the longest wait
	options.ContextTimeoutEnabled = true                     // and of each
	options.MaxRetries = -1                                  // the mutex asks again itself, as long as it may
	options.DialerRetries = 1
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&options), nil
}

func (w *waiters) put(client *redis.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	addr := client.Options().Addr
	if w.over || len(w.idle[addr]) >= maxIdle {
		_ = client.Close()
		return
	}
	w.idle[addr] = append(w.idle[addr], client)
}

// Close closes the idle connections, those that holds depend on, and those in use when they are done.
func (w *waiters) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, idle := range w.idle {
		for _, client := range idle {
			_ = client.Close()
		}
	}
	for client := range w.bound {
		_ = client.Close()
	}
	w.idle = nil
	return nil
}
