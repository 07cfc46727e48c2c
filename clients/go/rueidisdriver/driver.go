// Package rueidisdriver lets redislock work over a rueidis client.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	locks := redislock.NewWith(rueidisdriver.New(client))
//
// Servers with Sentinel and clusters are what the client makes of them.
//
// What answers at once goes through the client's pipeline. What waits has a connection of the client's blocking pool to itself, and a
// hold with a linger keeps one until its Unlock. So BlockingPoolSize (1024 unless set) is how many can wait at the same time.
package rueidisdriver

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/rueidis"
)

// retries is how often a command is sent again that may be. rueidis itself does that for reads only. The pauses between them double.
const (
	retries      = 3
	firstBackoff = 8 * time.Millisecond
	longestClose = time.Second
)

// New returns a driver that uses client, which stays the caller's to close.
func New(client rueidis.Client) driver.Driver {
	return &library{client: client, bound: map[*bound]bool{}}
}

type library struct {
	client rueidis.Client

	mu    sync.Mutex // of what follows
	bound map[*bound]bool
}

func (l *library) Do(ctx context.Context, commands ...driver.Command) []driver.Reply {
	replies := make([]driver.Reply, len(commands))
	open := make([]int, len(commands)) // those without a reply
	for i := range open {
		open[i] = i
	}
	for backoff := firstBackoff; ; backoff *= 4 {
		l.send(ctx, commands, open, replies)
		open = unanswered(commands, open, replies)
		if len(open) == 0 || backoff > firstBackoff<<(2*(retries-1)) || !sleep(ctx, backoff) {
			return replies
		}
	}
}

// send sends the commands with these indexes, and notes what the server says.
func (l *library) send(ctx context.Context, commands []driver.Command, which []int, replies []driver.Reply) {
	built := make([]rueidis.Completed, 0, len(which))
	var sendable []int
	for _, i := range which {
		words, err := driver.Words(commands[i].Args)
		if err != nil {
			replies[i] = driver.Reply{Err: err}
			continue
		}
		built, sendable = append(built, l.build(words, commands[i].Key, false)), append(sendable, i)
	}
	for n, result := range l.results(ctx, built) {
		sent := replies[sendable[n]].Sent
		reply := replyOf(result)
		if !answered(reply.Err) && !neverSent(reply.Err) { // A refusal has done nothing.
			sent++
		}
		reply.Sent = sent
		replies[sendable[n]] = reply
	}
}

// results sends what is built. In older versions only Do follows ASK.
func (l *library) results(ctx context.Context, built []rueidis.Completed) []rueidis.RedisResult {
	if len(built) == 1 {
		return []rueidis.RedisResult{l.client.Do(ctx, built[0])}
	}
	return l.client.DoMulti(ctx, built...)
}

// unanswered returns those of the commands that are to be sent again.
func unanswered(commands []driver.Command, which []int, replies []driver.Reply) (open []int) {
	for _, i := range which {
		err := replies[i].Err
		if err != nil && commands[i].Again && !errors.Is(err, rueidis.ErrClosing) && (!answered(err) || passes(err)) {
			open = append(open, i)
		}
	}
	return open
}

func (l *library) Wait(ctx context.Context, command driver.Command) (driver.Reply, driver.Bound) {
	words, err := driver.Words(command.Args)
	if err != nil {
		return driver.Reply{Err: err}, nil
	}
	// With a deadline, rueidis would read until then and not look at a cancellation. Without one it looks, and closes the connection.
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	type answer struct {
		reply driver.Reply
		bound *bound
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		if command.Binds {
			a.reply, a.bound = l.bind(within, words, command.Key)
		} else {
			a.reply = replyOf(l.client.Do(within, l.build(words, command.Key, true)))
		}
		answers <- a
	}()
	select {
	case a := <-answers:
		cancel()
		if a.bound == nil {
			return a.reply, nil
		}
		return a.reply, a.bound
	case <-ctx.Done():
		cancel()
		go func() {
			if a := <-answers; a.bound != nil {
				a.bound.close()
			}
		}()
		return driver.Reply{Err: ctx.Err()}, nil
	}
}

// bind sends a command on a connection of its own, which it returns if the server has answered without an error.
func (l *library) bind(ctx context.Context, words []string, key int) (driver.Reply, *bound) {
	client, release := l.client.Dedicate()
	reply := replyOf(client.Do(ctx, l.build(words, key, true)))
	if addr, asking, ok := driver.Redirection(reply.Err); ok {
		release()
		// In a cluster a dedicated connection stays at its node. An unknown node is known a moment later.
		node := l.client.Nodes()[addr]
		if node == nil {
			return reply, nil
		}
		client, release = node.Dedicate()
		if asking {
			client.Do(ctx, client.B().Arbitrary("ASKING").Build())
		}
		reply = replyOf(client.Do(ctx, l.build(words, key, true)))
	}
	b := &bound{library: l, client: client, release: release}
	switch {
	case reply.Err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bound[b] = true
		return reply, b
	case answered(reply.Err):
		release()
	default:
		b.close()
	}
	return reply, nil
}

// build makes a command whose key the client finds the node by.
func (l *library) build(words []string, key int, waits bool) rueidis.Completed {
	command := l.client.B().Arbitrary(words[:max(key, 1)]...)
	if key > 0 {
		command = command.Keys(words[key])
		words = words[1:]
	}
	command = command.Args(words[max(key, 1):]...)
	if waits {
		return command.Blocking()
	}
	return command.Build()
}

// Close closes the connections that holds depend on.
func (l *library) Close() error {
	l.mu.Lock()
	bounds := l.bound
	l.bound = map[*bound]bool{}
	l.mu.Unlock()
	var all sync.WaitGroup
	for b := range bounds {
		all.Add(1)
		go func() {
			defer all.Done()
			b.close()
		}()
	}
	closed := make(chan struct{})
	go func() {
		all.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(longestClose): // A server that is silent is not waited for.
	}
	return nil
}

// bound is a connection that a hold depends on.
type bound struct {
	library *library
	client  rueidis.DedicatedClient
	release func()
}

func (b *bound) Release() {
	b.forget()
	b.release()
}

func (b *bound) close() {
	b.forget()
	b.client.Close()
	b.release()
}

func (b *bound) forget() {
	b.library.mu.Lock()
	defer b.library.mu.Unlock()
	delete(b.library.bound, b)
}

func replyOf(result rueidis.RedisResult) driver.Reply {
	value, err := result.ToAny()
	if rueidis.IsRedisNil(err) {
		value, err = nil, nil
	}
	return driver.Reply{Value: plain(value), Err: plainError(err), Sent: 1}
}

// plain has maps and errors as the other drivers have them.
func plain(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = plain(value[i])
		}
	case map[string]any:
		entries := make(map[any]any, len(value))
		for k, v := range value {
			entries[k] = plain(v)
		}
		return entries
	case error:
		return plainError(value)
	}
	return value
}

func plainError(err error) error {
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return driver.Error(reply.Error())
	}
	return err
}

func answered(err error) bool {
	var reply driver.Error
	return errors.As(err, &reply)
}

// passes tells whether the server said that it, or another one, will do the same command later.
func passes(err error) bool {
	code, _, _ := strings.Cut(err.Error(), " ")
	switch code {
	case "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS":
		return true
	}
	return false
}

// neverSent tells whether there was no connection to send a command on.
func neverSent(err error) bool {
	var failure *net.OpError
	return errors.As(err, &failure) && failure.Op == "dial"
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
