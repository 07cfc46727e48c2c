package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// ErrClient is wrapped by the error of [Open] for a client that no lock can be right on. The text says why.
var ErrClient = errors.New("redislock: no lock can be right on this client")

// maxIdle is how many connections per server are kept for the next wait.
const maxIdle = 64

// longestIdle is how long they are kept. One that a dead host or a router has ended without a word would cost the next wait all its time.
const longestIdle = 30 * time.Second

// maxHops is how many redirections of a cluster one command follows.
const maxHops = 3

// goRedis is the driver of go-redis. What answers at once goes through the user's client. What waits has connections of its own: each a
// client with a single connection. go-redis gives a command of its user neither a read time-out of its own nor a way to end
// it, and a context's cancellation does not reach a read. Closing the client does.
type goRedis struct {
	client  redis.UniversalClient
	longest time.Duration // the read time-out: no wait is longer

	mu    sync.Mutex              // of what follows
	idle  map[string][]idleClient // the one that was used last is the last
	bound map[*redis.Client]bool  // connections that holds depend on
	over  bool
}

type idleClient struct {
	*redis.Client
	since time.Time
}

// What tells a client of one server from a cluster's, also where a user's type embeds one of them.
type (
	ofOne     interface{ Options() *redis.Options }
	ofCluster interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
		ReloadState(ctx context.Context)
	}
	ofRing interface{ Options() *redis.RingOptions }
)

func newGoRedis(client redis.UniversalClient, longest time.Duration) *goRedis {
	return &goRedis{client: client, longest: longest, idle: map[string][]idleClient{}, bound: map[*redis.Client]bool{}}
}

// refusal tells why no lock can be right on a client, or why none can wait.
func refusal(client redis.UniversalClient) error {
	switch client.(type) {
	case ofRing:
		return fmt.Errorf("%w: a Ring moves the keys of a shard that it cannot reach to another shard, and each process decides that for"+
			" itself. Two processes would hold one lock on two shards. Use a redis.Client for each shard, or a redis.ClusterClient", ErrClient)
	case ofOne, ofCluster:
		return nil
	}
	return fmt.Errorf("%w: %w, or a type that embeds one, and not a %T", ErrClient, errNoServer, client)
}

func (g *goRedis) Do(ctx context.Context, commands ...driver.Command) []driver.Reply {
	cmds, sent := make([]*redis.Cmd, len(commands)), make([]*countedWord, len(commands))
	routed := make([]redis.Cmder, len(commands))
	for i, command := range commands {
		cmds[i], sent[i] = goRedisCmd(ctx, command)
		routed[i] = g.routed(cmds[i])
	}
	if len(cmds) == 1 {
		_ = g.client.Process(ctx, routed[0])
	} else {
		// All of them, also when it fails for one. What each says is read below.
		_, _ = g.client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
			for _, cmd := range routed {
				_ = pipeline.Process(ctx, cmd)
			}
			return nil
		})
	}
	replies := make([]driver.Reply, len(cmds))
	for i, cmd := range cmds {
		replies[i] = goRedisReply(cmd)
		if sent[i] != nil {
			replies[i].Sent = max(int(sent[i].sent.Load()), 1)
		}
	}
	return replies
}

func (g *goRedis) Wait(ctx context.Context, command driver.Command) (driver.Reply, driver.Bound) {
	addr, asking := "", false
	for hops := 0; ; hops++ {
		client, err := g.get(ctx, command.FirstKey(), addr)
		if err != nil {
			return driver.Reply{Err: err}, nil
		}
		stop := context.AfterFunc(ctx, func() { _ = client.Close() })
		if asking {
			_ = client.Do(ctx, "ASKING").Err()
		}
		cmd, _ := goRedisCmd(ctx, command)
		_ = client.Process(ctx, cmd)
		reply := goRedisReply(cmd)
		if !stop() {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				g.forget(client.Options().Addr) // It was silent, and so may be what else is idle there.
			}
			return driver.Reply{Err: context.Cause(ctx)}, nil
		}
		next, ask, redirected := driver.Redirection(reply.Err)
		switch {
		case redirected && hops < maxHops:
			addr, asking = resolved(next, client.Options().Addr), ask
			g.put(client)
			if cluster, ok := g.client.(ofCluster); ok && !ask {
				cluster.ReloadState(ctx)
			}
			continue
		case reply.Err != nil && (!answered(reply.Err) || passes(reply.Err)):
			// The next one asks anew who the server is. What else is idle there has likely ended, too.
			_ = client.Close()
			g.forget(client.Options().Addr)
			if cluster, ok := g.client.(ofCluster); ok {
				cluster.ReloadState(ctx)
			}
			return reply, nil
		case reply.Err == nil && command.Binds:
			g.mu.Lock()
			defer g.mu.Unlock()
			g.bound[client] = true
			return reply, &goRedisBound{g, client}
		}
		g.put(client)
		return reply, nil
	}
}

// resolved is the address that a redirection names. A server that does not know its own name sends only the port.
func resolved(addr, from string) string {
	if !strings.HasPrefix(addr, ":") {
		return addr
	}
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		return addr
	}
	return net.JoinHostPort(host, addr[1:])
}

// get returns an idle connection, or a new one, to the server that has the key, or to the one at addr if there is an addr.
func (g *goRedis) get(ctx context.Context, key, addr string) (*redis.Client, error) {
	var options redis.Options
	switch client := g.client.(type) {
	case ofOne:
		options = *client.Options()
	case ofCluster:
		node, err := client.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		options = *node.Options()
	default:
		return nil, fmt.Errorf("%w: %T", errNoServer, client)
	}
	if addr != "" {
		options.Addr = addr
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	idle := g.idle[options.Addr]
	if last := len(idle) - 1; last >= 0 && time.Since(idle[last].since) < longestIdle {
		g.idle[options.Addr] = idle[:last]
		return idle[last].Client, nil
	}
	g.closeIdle(options.Addr) // The one that was used last is too old, and so are the others.
	options.PoolSize, options.MinIdleConns = 1, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0 // a hold may depend on it
	options.ReadTimeout = g.longest                          // of the longest wait
	options.ContextTimeoutEnabled = true                     // and of each
	options.MaxRetries = -1                                  // the mutex asks again itself, as long as it may
	setNewer(&options)
	return redis.NewClient(&options), nil
}

// setNewer sets what go-redis has in later versions only: one dial for each question, and no notifications about maintenance.
func setNewer(options *redis.Options) {
	fields := reflect.ValueOf(options).Elem()
	if retries := fields.FieldByName("DialerRetries"); retries.IsValid() {
		retries.SetInt(1)
	}
	if maintenance := fields.FieldByName("MaintNotificationsConfig"); maintenance.IsValid() {
		config := reflect.New(maintenance.Type().Elem())
		config.Elem().FieldByName("Mode").SetString("disabled")
		maintenance.Set(config)
	}
}

func (g *goRedis) put(client *redis.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	addr := client.Options().Addr
	if g.over || len(g.idle[addr]) >= maxIdle {
		_ = client.Close()
		return
	}
	g.idle[addr] = append(g.idle[addr], idleClient{client, time.Now()})
}

// forget closes the idle connections to a server.
func (g *goRedis) forget(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeIdle(addr)
}

func (g *goRedis) closeIdle(addr string) {
	for _, client := range g.idle[addr] {
		_ = client.Close()
	}
	delete(g.idle, addr)
}

// Close closes the idle connections and those that holds depend on. Those in use are closed when they are done.
func (g *goRedis) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	for addr := range g.idle {
		g.closeIdle(addr)
	}
	for client := range g.bound {
		_ = client.Close()
	}
	return nil
}

// goRedisBound is a connection that a hold depends on.
type goRedisBound struct {
	driver *goRedis
	client *redis.Client
}

func (b *goRedisBound) Release() {
	b.driver.mu.Lock()
	delete(b.driver.bound, b.client)
	b.driver.mu.Unlock()
	b.driver.put(b.client)
}

// A toPrimary is a question to which a replica's answer may be old. A cluster's client may send what only reads to a replica, and it
// tells that by the name. What has the name of a write goes to the primary, and follows MOVED and ASK as any command does.
type toPrimary struct{ *redis.Cmd }

func (toPrimary) Name() string { return "lock.renew" }

func (g *goRedis) routed(cmd *redis.Cmd) redis.Cmder {
	name := cmd.Name()
	if _, cluster := g.client.(ofCluster); cluster && (name == "lock.check" || name == "lock.info") {
		return toPrimary{cmd}
	}
	return cmd
}

// A countedWord is an argument that knows how often it was sent. go-redis sends a command again by itself, and does not tell; but it
// asks for the bytes each time.
type countedWord struct {
	word string
	sent atomic.Int32
}

func (c *countedWord) MarshalBinary() ([]byte, error) {
	c.sent.Add(1)
	return []byte(c.word), nil
}

// String is for hooks that print the command.
func (c *countedWord) String() string { return c.word }

// goRedisCmd makes a command, and counts how often it is sent by the word after its key.
func goRedisCmd(ctx context.Context, command driver.Command) (*redis.Cmd, *countedWord) {
	args := append([]any{}, command.Args...)
	var counted *countedWord
	if after := command.Key + 1; command.Key > 0 && after < len(args) {
		if word, ok := args[after].(string); ok {
			counted = &countedWord{word: word}
			args[after] = counted
		}
	}
	cmd := redis.NewCmd(ctx, args...)
	if command.Key > 0 {
		cmd.SetFirstKeyPos(int8(command.Key))
	}
	return cmd, counted
}

func goRedisReply(cmd *redis.Cmd) driver.Reply {
	value, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return driver.Reply{Value: value, Err: err, Sent: 1}
}
