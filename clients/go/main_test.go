package redislock

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis-lock/redis-lock/clients/go/goredisdriver"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

const (
	forever  = 1_000_000 // tries
	patience = 60 * time.Second
)

var (
	server *testserver.Server
	ctx    = context.Background()
	admin  *redis.Client
)

func TestMain(m *testing.M) {
	var err error
	if server, err = testserver.Start(); err != nil {
		log.Fatal(err)
	}
	admin = server.Client()
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// ServerAddr is for the examples, whose users have a server.
func ServerAddr() string { return server.Addr }

// A dialing says what a driver under test is to connect to.
type dialing struct {
	addrs  []string // of one server, or several of a cluster, or of Sentinels
	master string   // the name that the Sentinels know the primary by
	user   string
	secret string
}

// libraries are the drivers that the tests can run on. testdata/rueidis_test.go adds that of the other module.
var libraries = map[string]func(dialing) (driver.Driver, func(), error){"": goRedisOf, "go-redis": goRedisOf}

func goRedisOf(d dialing) (driver.Driver, func(), error) {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: d.addrs, MasterName: d.master, Username: d.user, Password: d.secret, RouteRandomly: len(d.addrs) > 1 && d.user == "",
	})
	driver, err := goredisdriver.New(client)
	return driver, func() { _ = client.Close() }, err
}

// connected returns a RedisLock on the driver under test: REDIS_LOCK_DRIVER names it.
func connected(t *testing.T, d dialing, options ...ClientOption) *RedisLock {
	driver, closeClient, err := libraries[os.Getenv("REDIS_LOCK_DRIVER")](d)
	must(t, err)
	locks := NewWith(driver, options...)
	t.Cleanup(func() {
		_ = locks.Close()
		closeClient()
	})
	return locks
}

// locksTo returns a RedisLock on one server whose keys are left as they are.
func locksTo(t *testing.T, addr string, options ...ClientOption) *RedisLock {
	return connected(t, dialing{addrs: []string{addr}}, options...)
}

// behindProxy returns a RedisLock on a server without keys, and what its connections go through.
func behindProxy(t *testing.T) (*RedisLock, *proxy) {
	must(t, admin.FlushAll(ctx).Err())
	proxy := newProxy(t, server.Addr)
	return locksTo(t, proxy.addr), proxy
}

// launched returns servers of its own for a test, as servers.py says.
func launched(t *testing.T, words ...string) []*testserver.Server {
	servers, err := testserver.Launch(words...)
	must(t, err)
	t.Cleanup(servers[0].Stop)
	return servers
}

func started(t *testing.T, words ...string) (*testserver.Server, *redis.Client) {
	server := launched(t, append([]string{"server"}, words...)...)[0]
	return server, clientOf(t, server)
}

func clientOf(t *testing.T, server *testserver.Server) *redis.Client {
	client := server.Client()
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// says checks that an error is one, and that its text has these words.
func says(t *testing.T, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Fatalf("it says %v instead of %v", err, is)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q does not say %q", err, word)
		}
	}
}

// refused checks that a lock was not had because others have it.
func refused(t *testing.T, err error) { t.Helper(); says(t, err, &ErrTaken{}) }

// released checks that it was done.
func released(t *testing.T) func(bool, error) { return is(t, true, nil) }

// failed checks that nothing was done, and that the error says why; nil: that there is none.
func failed(t *testing.T, want error) func(bool, error) { return is(t, false, want) }

func is(t *testing.T, done bool, want error) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		if ok != done || !errors.Is(err, want) {
			t.Fatalf("done: %v, %v instead of %v, %v", ok, err, done, want)
		}
	}
}

// eventually waits for a condition, within a bound that only a bug or a dead machine outlasts.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}

// waiting returns how many wait in the server's queue for a key.
func waiting(client *redis.Client, key string) int {
	return strings.Count(queueOf(client, key), "waited")
}

func queued(t *testing.T, key string, number int) {
	t.Helper()
	eventually(t, "places in the queue", func() bool { return waiting(admin, key) == number })
}

// queueOf returns what LOCK.INFO says of the waiters. Both protocols' replies print the field as one line.
func queueOf(client *redis.Client, key string) string {
	info, _ := client.Do(ctx, "LOCK.INFO", key).Result()
	return regexp.MustCompile(`waiters.*`).FindString(fmt.Sprint(info))
}

// calls returns how often the server ran a command since the last CONFIG RESETSTAT.
func calls(t *testing.T, client *redis.Client, command string) int {
	t.Helper()
	info, err := client.Info(ctx, "commandstats").Result()
	must(t, err)
	_, after, _ := strings.Cut(strings.ToLower(info), "cmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(digits)
	return n
}

// inBackground runs Lock, and returns what waits for its result.
func inBackground(t *testing.T, lock func() error) (result func() error) {
	done := make(chan error, 1)
	go func() { done <- lock() }()
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			t.Fatal("it never returned")
			return nil
		}
	}
}

// A proxy carries bytes, until it is told to end or to lose something.
type proxy struct {
	addr     string
	requests atomic.Int32 // packets of the clients
	swallow  atomic.Value // the reply to the next request with this word is lost, and the connection with it

	mu    sync.Mutex // of what follows
	links []*link    // all that there were
	shut  bool       // new connections are closed at once
}

type link struct {
	client     net.Conn
	deaf, lost atomic.Bool // it gets no replies any more; it ends with the next one
}

func newProxy(t *testing.T, to string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{addr: listener.Addr().String()}
	p.loses("")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", to)
			l := &link{client: client}
			p.mu.Lock()
			p.links = append(p.links, l)
			if p.shut || err != nil {
				_ = client.Close()
			} else {
				go p.carry(l, upstream, client)
				go p.carry(l, client, upstream)
			}
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *proxy) carry(l *link, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		switch {
		case from == l.client:
			p.requests.Add(1)
			if word := p.swallow.Load().(string); word != "" && strings.Contains(string(buffer[:n]), word) {
				l.lost.Store(p.swallow.CompareAndSwap(word, ""))
			}
		case l.lost.Load():
			return
		case l.deaf.Load():
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// each does something with all connections, and has new ones be closed at once, or not.
func (p *proxy) each(shut bool, do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	for _, l := range p.links {
		do(l)
	}
}

// cut ends the connections, and refuses new ones until join.
func (p *proxy) cut() { p.each(true, func(l *link) { _ = l.client.Close() }) }

func (p *proxy) join() { p.each(false, func(*link) {}) }

// silence loses the replies of the connections that are open, and keeps these, as a dead router does. New ones work.
func (p *proxy) silence() { p.each(false, func(l *link) { l.deaf.Store(true) }) }

// loses has the reply to the next request with a word be lost, and the connection with it.
func (p *proxy) loses(word string) { p.swallow.Store(word) }

func (p *proxy) hasLost() bool { return p.swallow.Load() == "" }
