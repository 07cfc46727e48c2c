package redislock

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

const forever = 1_000_000 // tries

func TestWaitersAreServedInOrderWithTwoCommandsEach(t *testing.T) {
	locks := newLocks(t)
	holder := locks.NewMutex("a")
	must(t, holder.Lock())
	must(t, admin.ConfigResetStat(ctx).Err())
	order := orderOf(t, locks, 5, 0)
	released(t)(holder.Unlock())
	expect(t, "order", fmt.Sprint(order()), "[0 1 2 3 4]")
	expect(t, "acquires", calls(t, "lock.acquire"), 5)
	expect(t, "releases", calls(t, "lock.release"), 6)
	expect(t, "renewals", calls(t, "lock.renew"), 0)
}

func TestPatienceIsOneWaitInTheServer(t *testing.T) {
	locks := newLocks(t)
	must(t, locks.NewMutex("a", WithExpiry(time.Minute)).Lock())
	must(t, admin.ConfigResetStat(ctx).Err())
	start := time.Now()
	err := locks.NewMutex("a", WithTries(4), WithRetryDelay(100*time.Millisecond)).Lock()
	took := time.Since(start)
	expect(t, "ErrTaken", errors.Is(err, &ErrTaken{}), true)
	if took < 299*time.Millisecond {
		t.Fatalf("it waited for only %v", took)
	}
	if n := calls(t, "lock.acquire"); n > 2 {
		t.Fatalf("%d commands", n)
	}
}

func TestARefusalThatAskedForNoPlaceGivesNothingBack(t *testing.T) {
	locks := newLocks(t)
	must(t, locks.NewMutex("a", WithExpiry(time.Minute)).Lock())
	must(t, admin.ConfigResetStat(ctx).Err())
	refused(t, locks.NewMutex("a").TryLock())
	refused(t, locks.NewMutex("a", WithTries(1)).Lock())
	_, err := locks.NewSemaphore("a", 2).TryAcquire(ctx)
	refused(t, err)
	ran, err := locks.RunOnce(ctx, "a", time.Minute, 0, nil)
	expect(t, fmt.Sprint("it ran: ", err), ran || err != nil, false)
	expect(t, "acquires", calls(t, "lock.acquire"), 4)
	expect(t, "releases", calls(t, "lock.release"), 0)
}

// What a silent server may cost a Lock: its patience, the margin of the last wait, and another to give back.
const silence = 300*time.Millisecond + 2*margin + 500*time.Millisecond

func TestASilentServerCostsLittleMoreThanThePatience(t *testing.T) {
	silent := newProxy(t)
	deaf := newProxy(t) // its handshake is answered, its grant not
	for name, proxy := range map[string]*proxy{"from the beginning": silent, "at the grant": deaf} {
		t.Run(name, func(t *testing.T) {
			locks := newLocksAt(t, proxy.addr)
			if proxy == silent {
				proxy.hush.Store(true) // A client may connect when it is made.
			}
			if proxy == deaf {
				// A connection that has waited before is kept for the next wait, which is shorter.
				warm := locks.NewMutex("b", WithTries(forever))
				must(t, warm.Lock())
				proxy.hush.Store(true)
			}
			start := time.Now()
			err := locks.NewMutex("a", WithTries(4), WithRetryDelay(100*time.Millisecond), WithExpiry(time.Minute)).Lock()
			took := time.Since(start)
			expect(t, "an error of the connection", errors.As(err, new(*RedisError)), true)
			if took < 300*time.Millisecond || took > silence {
				t.Fatalf("it took %v", took)
			}
		})
	}
}

// idleConnections has some connections become idle, and the server of the client silent on them.
func idleConnections(t *testing.T, number int) (*RedisLock, *goRedis) {
	t.Helper()
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	native, ok := locks.driver.(*goRedis)
	if !ok {
		t.Skip("the library looks after its connections")
	}
	var held []*Mutex
	for i := range number {
		mutex := locks.NewMutex(fmt.Sprint("warm", i), WithLinger(time.Minute)) // has a connection of its own
		must(t, mutex.Lock())
		held = append(held, mutex)
	}
	for _, mutex := range held {
		released(t)(mutex.Unlock())
	}
	expect(t, "idle connections", len(native.idle[proxy.addr]), number)
	proxy.silence()
	return locks, native
}

var impatiently = []Option{WithTries(4), WithRetryDelay(100 * time.Millisecond)}

func TestAConnectionThatWasIdleForLongIsNotUsed(t *testing.T) {
	locks, native := idleConnections(t, 2)
	for _, idle := range native.idle {
		for i := range idle {
			idle[i].since = time.Now().Add(-longestIdle)
		}
	}
	must(t, locks.NewMutex("a", impatiently...).Lock())
}

func TestASilentConnectionTakesTheIdleOnesAlong(t *testing.T) {
	locks, _ := idleConnections(t, 3) // one for the Lock, one for what gives back, and one more
	err := locks.NewMutex("a", impatiently...).Lock()
	expect(t, fmt.Sprint("an error of the connection: ", err), errors.As(err, new(*RedisError)), true)
	must(t, locks.NewMutex("a", impatiently...).Lock())
}

func TestARenewalOutlivesConnectionsThatHaveDied(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	expiry := 6500 * time.Millisecond // the others send all over one connection, and wait for longer
	if _, ok := locks.driver.(*goRedis); ok {
		expiry = 4500 * time.Millisecond
	}
	mutex := locks.NewMutex("a", WithExpiry(expiry))
	must(t, mutex.Lock())
	released(t)(mutex.Extend()) // The library has a connection, too.
	within, stop := mutex.KeepAlive(ctx)
	defer stop()
	until := mutex.Until()
	proxy.silence()
	eventually(t, "a renewal", func() bool { return within.Err() != nil || mutex.Until().After(until) })
	must(t, within.Err())
}

func TestALostReplyIsHadByAskingAgain(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	warm := locks.NewMutex("b")
	must(t, warm.Lock())

	must(t, admin.ConfigResetStat(ctx).Err())
	proxy.swallow.Store(true)
	// So long that another token would never get it.
	const expiry = time.Hour
	mutex := locks.NewMutex("a", WithTries(forever), WithExpiry(expiry))
	must(t, result(t, inBackground(mutex.Lock)))
	expect(t, "swallowed", proxy.swallow.Load(), false)
	expect(t, "acquires", calls(t, "lock.acquire"), 2)
	expect(t, "one hold", mutex.Fence() > 0 && admin.Exists(ctx, "a").Val() == 1, true)
	released(t)(mutex.Unlock())

	// One who gives up after a lost reply leaves no hold behind.
	proxy.swallow.Store(true)
	err := locks.NewMutex("a", WithTries(2), WithRetryDelay(20*time.Millisecond), WithExpiry(expiry)).Lock()
	expect(t, "an error of the connection", errors.As(err, new(*RedisError)), true)
	eventually(t, "a free lock", func() bool { return admin.Exists(ctx, "a").Val() == 0 })
}

func TestAReleaseThatIsSentAgainIsARelease(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	must(t, locks.NewMutex("b").TryLock()) // the reply that is lost shall not be the handshake's
	must(t, admin.ConfigResetStat(ctx).Err())

	mutex := locks.NewMutex("a")
	must(t, mutex.Lock())
	proxy.swallow.Store(true)
	released(t)(mutex.Unlock())
	expect(t, "releases", calls(t, "lock.release"), 2)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())

	// When the lease is over, so may the lock have been.
	mutex = locks.NewMutex("a", WithExpiry(50*time.Millisecond))
	must(t, mutex.Lock())
	time.Sleep(100 * time.Millisecond)
	proxy.swallow.Store(true)
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())
	expect(t, "swallowed", proxy.swallow.Load(), false)
}

// A proxy loses one reply, and the connection with it, when it is told to; or all of them, and
// keeps the connections. It can cut the connections, and serve new ones late.
type proxy struct {
	addr    string
	to      string
	swallow atomic.Bool
	hush    atomic.Bool
	keeps   atomic.Int32 // how many commands said KEEP

	mu    sync.Mutex // of what follows
	open  []net.Conn
	count int           // of the connections so far
	deaf  int           // as many of the first ones get no replies any more
	shut  bool          // new connections are closed at once
	delay time.Duration // before a new connection is served
	late  *lateRequest  // nil: none is late
}

// A lateRequest is a command that the proxy carries to the server only when it may go on, or not at all.
type lateRequest struct {
	name          string
	lost          bool
	arrived, goOn chan struct{}
}

// delays has the next request of a name be late.
func (p *proxy) delays(name string) *lateRequest {
	late := &lateRequest{name: name, arrived: make(chan struct{}), goOn: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
	return late
}

// loses has the next request of a name be lost, and the connection with it.
func (p *proxy) loses(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = &lateRequest{name: name, lost: true}
}

// isLost keeps a request back if it is the one that is to be late, and tells whether it is lost.
func (p *proxy) isLost(request []byte) bool {
	p.mu.Lock()
	late := p.late
	if late == nil || !bytes.Contains(request, []byte(late.name)) {
		p.mu.Unlock()
		return false
	}
	p.late = nil
	p.mu.Unlock()
	if !late.lost {
		close(late.arrived)
		<-late.goOn
	}
	return late.lost
}

// cut closes the connections, as a lost network would. New ones are then served late, or not at all.
func (p *proxy) cut(delay time.Duration, shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.shut = delay, shut
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
}

// silence keeps the replies of the connections that are open back, and the connections. New ones work.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = p.count
}

func (p *proxy) hears(nth int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return nth > p.deaf && !p.hush.Load()
}

func (p *proxy) admit(client net.Conn) (nth int, delay time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, client)
	p.count++
	return p.count, p.delay, !p.shut
}

func newProxy(t *testing.T) *proxy { return newProxyTo(t, server.Addr) }

func newProxyTo(t *testing.T, to string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &proxy{addr: listener.Addr().String(), to: to}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	nth, delay, ok := p.admit(client)
	if !ok {
		return
	}
	time.Sleep(delay)
	upstream, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		defer upstream.Close()
		p.ask(upstream, client)
	}()
	replies := bufio.NewReader(upstream)
	buffer := make([]byte, 4096)
	for {
		n, err := replies.Read(buffer)
		if err != nil || p.swallow.CompareAndSwap(true, false) {
			return
		}
		if !p.hears(nth) {
			continue
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// ask carries what the client asks to the server. A waiter's connection has one command at a time,
// and go-redis writes it at once.
func (p *proxy) ask(upstream, client net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("\r\nKEEP\r\n")) {
			p.keeps.Add(1)
		}
		if p.isLost(buffer[:n]) {
			return
		}
		if _, err := upstream.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func TestUntilIsNeverLaterThanTheServersDeadline(t *testing.T) {
	locks := newLocks(t)
	const expiry = time.Second
	holder := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, holder.Lock())
	must(t, admin.ConfigResetStat(ctx).Err())
	mutex := locks.NewMutex("a", WithTries(forever), WithExpiry(expiry))
	done := inBackground(mutex.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	time.Sleep(expiry) // the wait that is longer than the lease
	released(t)(holder.Unlock())
	must(t, result(t, done))
	expect(t, "renewals", calls(t, "lock.renew"), 1)
	left, until := admin.PTTL(ctx, "a").Val(), time.Until(mutex.Until())
	if until > left || until < expiry/4 {
		t.Fatalf("we believe in %v, the server in %v", until, left)
	}
}

func TestWaitersDoNotUseThePool(t *testing.T) {
	must(t, admin.FlushAll(ctx).Err())
	locks := connected(t, dialing{addrs: []string{server.Addr}, narrow: true})
	holder := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, holder.Lock())
	mutex := locks.NewMutex("a", WithTries(forever))
	done := inBackground(mutex.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	released(t)(holder.Unlock())
	must(t, result(t, done))
}

func TestARingIsRefusedWhenTheLocksAreMade(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
	defer ring.Close()
	for name, client := range map[string]redis.UniversalClient{"as it is": ring, "in a type of the user's": struct{ *redis.Ring }{ring}} {
		t.Run(name, func(t *testing.T) {
			locks, err := Open(client)
			expect(t, fmt.Sprint("refused: ", err), locks == nil && errors.Is(err, ErrClient) && strings.Contains(err.Error(), "Ring"), true)
			defer func() {
				panicked, _ := recover().(error)
				expect(t, "New panics with the same error", errors.Is(panicked, ErrClient), true)
			}()
			New(client)
		})
	}
}

func TestAClientThatNobodyKnowsIsRefusedByOpen(t *testing.T) {
	unknown := struct{ redis.UniversalClient }{}
	_, err := Open(unknown)
	expect(t, fmt.Sprint("refused: ", err), errors.Is(err, ErrClient) && errors.Is(err, errNoServer), true)
	err = New(unknown).NewMutex("a").Lock()
	expect(t, fmt.Sprint("New leaves it to Lock: ", err), errors.Is(err, errNoServer), true)
	_, err = Open(nil)
	expect(t, fmt.Sprint("no client: ", err), errors.Is(err, ErrClient), true)
}

func TestAClientOfTheUsersTypeWaitsToo(t *testing.T) {
	must(t, admin.FlushAll(ctx).Err())
	client := server.Client()
	defer client.Close()
	locks := New(struct{ *redis.Client }{client})
	defer locks.Close()
	holder := locks.NewMutex("a")
	must(t, holder.Lock())
	refused(t, locks.NewMutex("a", WithTries(2)).Lock())
	released(t)(holder.Unlock())
}

func TestARWMutexIsSharedByReaders(t *testing.T) {
	locks := newLocks(t)
	one, two, writer := locks.NewRWMutex("a"), locks.NewRWMutex("a"), locks.NewRWMutex("a")
	must(t, one.RLockContext(ctx))
	must(t, two.TryRLockContext(ctx))
	refused(t, writer.TryLock())
	released(t)(one.Reader().Extend())
	released(t)(one.RUnlock())
	released(t)(two.RUnlockContext(ctx))
	must(t, writer.TryLock())
	refused(t, one.TryRLock())
	expect(t, "fences rise", one.Reader().Fence() < two.Reader().Fence() && two.Reader().Fence() < writer.Fence(), true)
	released(t)(writer.Unlock())
}

func TestAServerThatLacksReplicasIsAskedAgain(t *testing.T) {
	own, err := testserver.Start()
	must(t, err)
	defer own.Stop()
	client := own.Client()
	defer client.Close()
	must(t, client.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	done := inBackground(locksTo(t, own.Addr).NewMutex("a").Lock)
	refusals := regexp.MustCompile(`cmdstat_lock\.acquire:.*rejected_calls=[1-9]`)
	eventually(t, "NOREPLICAS", func() bool { return refusals.MatchString(client.Info(ctx, "commandstats").Val()) })
	must(t, client.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	must(t, result(t, done))
}

func TestAReleaseThatWasRefusedBeforeIsNoReleaseWhenItFindsNothing(t *testing.T) {
	if name := os.Getenv("REDIS_LOCK_DRIVER"); name == "" || name == "go-redis" {
		t.Skip("go-redis does not tell why it has sent a command again")
	}
	own, err := testserver.Start()
	must(t, err)
	defer own.Stop()
	client := own.Client()
	defer client.Close()
	locks := locksTo(t, own.Addr)
	refusals := regexp.MustCompile(`cmdstat_lock\.release:.*rejected_calls=[1-9]`)
	for {
		mutex := locks.NewMutex("a", WithExpiry(time.Minute))
		must(t, mutex.Lock())
		must(t, client.Del(ctx, "a").Err()) // as a failover loses it
		must(t, client.ConfigResetStat(ctx).Err())
		must(t, client.Do(ctx, "REPLICAOF", "127.0.0.1", 1).Err())
		var ok bool
		done := inBackground(func() (err error) {
			ok, err = mutex.Unlock()
			return err
		})
		eventually(t, "READONLY", func() bool { return refusals.MatchString(client.Info(ctx, "commandstats").Val()) })
		must(t, client.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
		err := result(t, done)
		if says(err, "READONLY") {
			continue // We were too late for its last try.
		}
		failed(t, ErrLockAlreadyExpired)(ok, err)
		return
	}
}
