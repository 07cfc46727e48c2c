// Package goredisdriver is the driver of go-redis. redislock.New uses it; with the package core it is named:
//
//	driver, err := goredisdriver.New(client)
//	locks := &core.Client{Driver: driver}
//
// All that it sends goes over connections of its own, which it makes with the client's options. So neither a wait nor what prolongs or
// ends a hold depends on the client's pool, and the client's hooks see none of it.
package goredisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/core"
	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// ErrClient is wrapped by the error of [New] for a client that no lock can be right on. The text says why.
var ErrClient = errors.New("redislock: no lock can be right on this client")

const (
	// maxIdle is how many connections per server are kept for the next request.
	maxIdle = 64
	// longestIdle is how long they are used again. One that a dead host or a router has ended without a word would cost the next request
	// all its time.
	longestIdle = 30 * time.Second
	// maxHops is how many redirections of a cluster one command follows.
	maxHops = 3
)

// What tells a client of one server from a cluster's, also where a user's type embeds one of them.
type (
	ofOne     interface{ Options() *redis.Options }
	ofCluster interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
		ReloadState(ctx context.Context)
	}
)

// library makes each connection as a client with a pool of one. go-redis gives a command of its user neither a read time-out of its
// own nor a way to end it, and a context's cancellation does not reach a read. Closing the client does.
type library struct {
	server func(ctx context.Context, key string) (ofOne, error) // the one that has a key
	reload func(context.Context)                                // asks a cluster anew who has what

	mu   sync.Mutex                 // of what follows
	idle map[string][]*redis.Client // by address; the one that was used last is the last
	open map[*conn]bool             // those in use; nil: the driver is closed
}

// New returns a driver that uses the options of client, which is a *redis.Client (of redis.NewClient or redis.NewFailoverClient), a
// *redis.ClusterClient, or a type that embeds one.
func New(client redis.UniversalClient) (driver.Driver, error) {
	l := &library{reload: func(context.Context) {}, idle: map[string][]*redis.Client{}, open: map[*conn]bool{}}
	switch client := client.(type) {
	case ofOne:
		l.server = func(context.Context, string) (ofOne, error) { return client, nil }
	case ofCluster:
		l.server = func(ctx context.Context, key string) (ofOne, error) {
			found := make(chan func() (ofOne, error), 1)
			go func() { // Before it knows any node it asks one, whatever ctx says.
				node, err := client.MasterForKey(ctx, key)
				found <- func() (ofOne, error) { return node, err }
			}()
			select {
			case result := <-found:
				return result()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		l.reload = client.ReloadState
	default:
		return nil, fmt.Errorf("%w: it needs a redis.Client, a redis.ClusterClient, or a type that embeds one, and not a %T. (A Ring moves"+
			" the keys of a shard that it cannot reach to another shard, and each process decides that for itself. Two processes would hold"+
			" one lock on two shards. Use a redis.Client for each shard)", ErrClient, client)
	}
	return l, nil
}

func (l *library) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	c, err := l.Open(ctx, commands[0].FirstKey())
	if err != nil {
		return driver.Failed(commands, err)
	}
	defer c.Release()
	if limit := c.(*conn).user.ReadTimeout; limit > 0 { // for an answer that the server gives at once
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = within
	}
	return c.Send(ctx, commands...)
}

// Open returns an idle connection to the server that has the key, or a new one.
func (l *library) Open(ctx context.Context, key string) (driver.Conn, error) {
	server, err := l.server(ctx, key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		err = errors.New("the locks are closed")
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	user := server.Options()
	idle := l.idle[user.Addr]
	if len(idle) == 0 {
		idle = append(idle, newClient(*user, user.Addr))
	}
	last := len(idle) - 1
	l.idle[user.Addr] = idle[:last]
	// Its connection may have ended while it was idle, or is too old: then this begins a new one.
	c := &conn{library: l, user: user, client: idle[last], only: idle[last].Conn()}
	l.open[c] = true
	return c, nil
}

func (l *library) closeIdle(addr string) {
	for _, client := range l.idle[addr] {
		_ = client.Close()
	}
	delete(l.idle, addr)
}

// Close closes all connections.
func (l *library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for addr := range l.idle {
		l.closeIdle(addr)
	}
	for c := range l.open {
		_ = c.client.Close()
	}
	l.open = nil
	return nil
}

type conn struct {
	library *library
	user    *redis.Options // of the user's client
	client  *redis.Client  // which has one connection; others close it
	only    *redis.Conn    // that one, and after its end no other one
	leaves  bool           // the last answers say that it is of no more use
}

// newClient returns a client of one connection.
func newClient(options redis.Options, addr string) *redis.Client {
	options.Addr = addr
	options.PoolSize, options.MinIdleConns = 1, 0
	options.ConnMaxIdleTime = longestIdle                 // between two uses, also where it has not been closed
	options.ReadTimeout = core.LongestSlice + core.Margin // of the longest wait
	options.ContextTimeoutEnabled = true                  // and of each
	options.MaxRetries = -1                               // the core asks again itself, as long as it may
	later := reflect.ValueOf(&options).Elem()             // only later versions have what follows
	if retries := later.FieldByName("DialerRetries"); retries.IsValid() {
		retries.SetInt(1)
	}
	if notifications := later.FieldByName("MaintNotificationsConfig"); notifications.IsValid() {
		config := reflect.New(notifications.Type().Elem())
		config.Elem().FieldByName("Mode").SetString("disabled")
		notifications.Set(config)
	}
	return redis.NewClient(&options)
}

func (c *conn) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	replies := c.send(ctx, commands...)
	for i := range replies {
		for range maxHops { // What a cluster knew may be old, and the slot may be moving: MOVED, and then ASK.
			addr, asking, redirected := driver.Redirection(replies[i].Err)
			if !redirected || ctx.Err() != nil {
				break
			}
			c.move(addr)
			if asking {
				c.send(ctx, driver.Command{Args: []any{"ASKING"}})
			} else {
				c.library.reload(ctx)
			}
			replies[i] = c.send(ctx, commands[i])[0]
		}
	}
	c.leaves = slices.ContainsFunc(replies, core.Leaves)
	return replies
}

// move makes it a connection to another server of the cluster.
func (c *conn) move(addr string) {
	if strings.HasPrefix(addr, ":") { // A server that does not know its own name sends only the port.
		host, _, _ := net.SplitHostPort(c.client.Options().Addr)
		addr = net.JoinHostPort(host, addr[1:])
	}
	c.library.mu.Lock()
	defer c.library.mu.Unlock()
	_ = c.client.Close()
	c.client = newClient(*c.user, addr)
	c.only = c.client.Conn()
	if !c.library.open[c] { // It was closed meanwhile.
		_ = c.client.Close()
	}
}

// send sends commands once.
func (c *conn) send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	client := c.client
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	cmds := make([]*redis.Cmd, len(commands))
	process, pipeline := c.only.Process, c.only.Pipeline()
	if len(commands) > 1 { // One costs less without.
		process = pipeline.Process
	}
	for i, command := range commands {
		cmds[i] = redis.NewCmd(ctx, command.Args...)
		_ = process(ctx, cmds[i])
	}
	_, failure := pipeline.Exec(ctx) // of nothing, if it was one
	replies := make([]driver.Reply, len(commands))
	for i, cmd := range cmds {
		value, err := cmd.Result()
		switch {
		case errors.Is(err, redis.Nil):
			err = nil
		case err == nil && value == nil: // Older versions tell the commands nothing where there is no connection.
			err = failure
		}
		replies[i] = driver.Reply{Value: value, Err: err}
	}
	if !stop() {
		return driver.Failed(commands, context.Cause(ctx))
	}
	return replies
}

func (c *conn) Release() { c.end(c.leaves) }

func (c *conn) Close() { c.end(true) }

// end keeps the connection for the next one, or closes it. What else is idle there has likely ended then, too, or is as silent. One that
// has ended before may have moved since.
func (c *conn) end(broken bool) {
	l := c.library
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open[c]
	delete(l.open, c)
	addr := c.client.Options().Addr
	idle := l.idle[addr]
	if open && !broken && len(idle) < maxIdle {
		_ = c.only.Close()
		l.idle[addr] = append(idle, c.client)
		return
	}
	_ = c.client.Close()
	if open && broken {
		l.closeIdle(addr)
		l.reload(context.Background())
	}
}
