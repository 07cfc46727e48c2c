package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

func TestExecRunsOnlyWhileTheLockIsHeld(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Minute))
	expect(t, "before", errors.Is(mutex.Exec(ctx, "INCR", "n").Err(), ErrNotHeld), true)
	must(t, mutex.Lock())
	n, err := mutex.Exec(ctx, "INCR", "n").Int()
	must(t, err)
	expect(t, "its reply", n, 1)
	expect(t, "a null", errors.Is(mutex.Exec(ctx, "GET", "nothing").Err(), redis.Nil), true)
	err = mutex.Exec(ctx, "LPUSH", "n", "x").Err()
	expect(t, fmt.Sprint("its own error: ", err), says(err, "WRONGTYPE"), true)
	released(t)(mutex.Check(ctx))

	must(t, admin.Set(ctx, "a", "an old client's", 0).Err())
	ok, err := mutex.Check(ctx)
	expect(t, "held beside a string", ok || err != nil, false)
}

func TestAJobThatFailsOrIsCancelledGivesTheLockBack(t *testing.T) {
	locks := newLocks(t)
	trouble := errors.New("trouble")
	within, cancel := context.WithCancel(ctx)
	ran, err := locks.RunOnce(within, "a", time.Minute, 0, func(ctx context.Context, _ *Mutex) error {
		cancel()
		<-ctx.Done()
		return trouble
	})
	expect(t, "ran, and failed", ran && errors.Is(err, trouble), true)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	_, err = locks.RunOnce(ctx, "a", time.Second, time.Minute, nil)
	expect(t, "atLeast beyond atMost", err != nil, true)
}

func TestAJobLeavesTheCallersOptionsAsTheyAre(t *testing.T) {
	locks := newLocks(t)
	options := append(make([]Option, 0, 2), WithTries(1))
	_, err := locks.RunOnce(ctx, "a", time.Minute, 0, func(context.Context, *Mutex) error { return nil }, options...)
	must(t, err)
	expect(t, "nothing beyond their end", options[:2][1] == nil, true)
}

func TestAJobsContextEndsWithItsLock(t *testing.T) {
	locks := newLocks(t)
	const atMost = time.Second
	start := time.Now()
	ran, err := locks.RunOnce(ctx, "a", atMost, 0, func(ctx context.Context, mutex *Mutex) error {
		time.Sleep(atMost / 2)
		released(t)(mutex.Extend())
		<-ctx.Done()
		return context.Cause(ctx)
	})
	took := time.Since(start)
	expect(t, fmt.Sprint("it was told: ", err), ran && errors.Is(err, ErrNotHeld), true)
	if took < atMost*13/10 || took > 10*time.Second {
		t.Fatalf("it ended after %v", took)
	}
}

func TestALateRenewalDoesNotProlongWhatAJobLeaves(t *testing.T) {
	const atMost, atLeast = 3 * time.Second, 2 * time.Second
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	must(t, admin.ConfigResetStat(ctx).Err())
	late := proxy.delays("LOCK.RENEW")
	done := inBackground(func() error {
		_, err := locks.RunOnce(ctx, "a", atMost, atLeast, func(ctx context.Context, mutex *Mutex) error {
			_, stop := mutex.KeepAlive(ctx)
			<-late.arrived // A third of atMost has passed.
			stop()
			return nil
		})
		return err
	})
	<-late.arrived
	// The release may come first, if nothing keeps it.
	for began := time.Now(); time.Since(began) < 300*time.Millisecond && calls(t, "lock.release") == 0; {
		time.Sleep(2 * time.Millisecond)
	}
	close(late.goOn)
	must(t, result(t, done))
	eventually(t, "the renewal", func() bool { return calls(t, "lock.renew") == 1 })
	if left := admin.PTTL(ctx, "a").Val(); left > atLeast-atMost/3 {
		t.Fatalf("%v are left", left)
	}
}

// waiterIDs returns the connections whose last command is an acquire.
func waiterIDs(t *testing.T) (ids []string) {
	t.Helper()
	clients, err := admin.ClientList(ctx).Result()
	must(t, err)
	for _, line := range strings.Split(clients, "\n") {
		if strings.Contains(line, "cmd=lock.acquire") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			ids = append(ids, id)
		}
	}
	return ids
}

// kill ends the connections of which CLIENT LIST says this, and returns how many there were.
func kill(t *testing.T, match string) int {
	t.Helper()
	clients, err := admin.ClientList(ctx).Result()
	must(t, err)
	killed := 0
	for _, line := range strings.Split(strings.TrimSpace(clients), "\n") {
		if !strings.Contains(line, match) {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		must(t, admin.ClientKillByFilter(ctx, "ID", id).Err())
		killed++
	}
	return killed
}

func TestALockThatLingersEndsSoonAfterItsConnection(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waited for: ", waits), func(t *testing.T) {
			proxy := newProxy(t)
			far, locks := newLocksAt(t, proxy.addr), newLocks(t)
			mutex := far.NewMutex("a", WithTries(forever), WithExpiry(time.Hour), WithLinger(300*time.Millisecond))
			if waits {
				holder := locks.NewMutex("a")
				must(t, holder.Lock())
				done := inBackground(mutex.Lock)
				eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
				released(t)(holder.Unlock())
				must(t, result(t, done))
			} else {
				must(t, mutex.TryLock())
			}
			// Others of the client use and lose other connections.
			must(t, far.NewMutex("b").Lock())
			released(t)(mutex.Extend())
			expect(t, "connections that released or renewed", kill(t, "cmd=lock.renew") > 0, true)
			expect(t, "an hour", admin.PTTL(ctx, "a").Val() > 50*time.Minute, true)

			start := time.Now()
			proxy.cut(0, true)
			next := locks.NewMutex("a", WithTries(forever))
			must(t, result(t, inBackground(next.Lock)))
			if took := time.Since(start); took < 200*time.Millisecond || took > 10*time.Second {
				t.Fatalf("it lingered for %v", took)
			}
			ok, err := locks.NewMutex("a", WithValue(mutex.Value())).Check(ctx)
			expect(t, "held", ok || err != nil, false)
		})
	}
}

func TestAConnectionOfALockThatLingersIsUsedAgain(t *testing.T) {
	locks := newLocks(t)
	linger := WithLinger(time.Second)
	mutex := locks.NewMutex("a", linger)
	must(t, mutex.Lock())
	bound := waiterIDs(t)
	expect(t, "it has one connection", len(bound), 1)
	native, isGoRedis := locks.driver.(*goRedis)
	if isGoRedis {
		expect(t, "it is not idle", len(native.idle[server.Addr]), 0)
	}
	other := locks.NewMutex("b", linger)
	must(t, other.Lock())
	expect(t, "each has its own", len(waiterIDs(t)) == 2 && slices.Contains(waiterIDs(t), bound[0]), true)
	released(t)(mutex.Unlock())
	must(t, mutex.Lock())
	expect(t, "it is used again", len(waiterIDs(t)), 2)
	// Also when the lock was lost before.
	must(t, admin.Del(ctx, "a").Err())
	must(t, mutex.Lock())
	if isGoRedis {
		expect(t, "those that are bound", len(native.bound), 2)
	}
	released(t)(mutex.Unlock())
	must(t, locks.Close())
	eventually(t, "the connections' end", func() bool { return len(waiterIDs(t)) == 0 })
	eventually(t, "the other's end", func() bool { return admin.Exists(ctx, "b").Val() == 0 })
}

// oneToken makes an upgrade of a reader's Lock: both sides have the same value.
var oneToken = WithGenValueFunc(func() (string, error) { return "mine", nil })

func TestAnUnlockOfOneSideEndsTheOther(t *testing.T) {
	both := newLocks(t).NewRWMutex("a", oneToken, WithExpiry(time.Minute))
	writer, reader := both.Mutex, both.Reader()
	for _, order := range [][]*Mutex{{reader, writer, writer}, {reader, writer, reader}, {writer, reader, reader}, {writer, reader, writer}} {
		var areOver []func() bool
		for _, side := range order[:2] {
			must(t, side.Lock())
			areOver = append(areOver, leaseOf(t, side))
		}
		released(t)(order[2].Unlock())
		for i, side := range order[:2] {
			expect(t, "the lease goes on", time.Now().Before(side.Until()), false)
			eventually(t, "the end of its context", areOver[i])
		}
	}
}

func TestARenewalDoesNotUndoAConversion(t *testing.T) {
	locks := newLocks(t)
	both := locks.NewRWMutex("a", oneToken, WithExpiry(time.Minute), WithLinger(10*time.Second))
	other := locks.NewRWMutex("a")
	must(t, both.RLock())
	must(t, both.Lock())
	if native, ok := locks.driver.(*goRedis); ok {
		expect(t, "connections that are bound", len(native.bound), 1)
	}
	released(t)(both.Reader().Extend())
	refused(t, other.TryRLock())
	must(t, admin.ConfigResetStat(ctx).Err())
	released(t)(both.Extend())
	expect(t, "the writer's renewal binds", calls(t, "rwlock.wlock"), 1)

	isOver := leaseOf(t, both.Mutex)
	must(t, both.RLock())
	expect(t, "the writer's lease goes on", time.Now().Before(both.Until()), false)
	eventually(t, "the end of its context", isOver)
	failed(t, ErrExtendFailed)(both.Extend())
	must(t, other.TryRLock())
	must(t, admin.ConfigResetStat(ctx).Err())
	released(t)(both.Reader().Extend())
	expect(t, "the reader's renewal binds", calls(t, "rwlock.rlock"), 1)
}

func TestAConversionWaitsForARenewalThatIsOnItsWay(t *testing.T) {
	locks := newLocks(t)
	both := locks.NewRWMutex("a", oneToken, WithExpiry(time.Minute), WithLinger(10*time.Second))
	must(t, both.RLock())
	late := newHeldBack(locks, "RWLOCK.RLOCK")
	renewal := inBackground(func() error {
		_, err := both.Reader().Extend()
		return err
	})
	<-late.arrived
	upgrade := make(chan error, 1)
	go func() { upgrade <- both.Lock() }()
	select {
	case err := <-upgrade:
		t.Error("the upgrade came first")
		upgrade <- err
	case <-time.After(300 * time.Millisecond):
	}
	close(late.goOn)
	must(t, result(t, renewal))
	must(t, result(t, upgrade))
	refused(t, locks.NewRWMutex("a").TryRLock())
}

func TestARenewalWhoseBindingIsRefusedForNowIsNoLoss(t *testing.T) {
	locks := newLocks(t)
	permits := locks.NewSemaphore("a", 2, WithExpiry(time.Minute), WithLinger(10*time.Second))
	one, err := permits.Acquire(ctx)
	must(t, err)
	other, err := permits.Acquire(ctx)
	must(t, err)
	one.limit = 1 // The server renews the permit, and answers null to this request as long as there are two.
	released(t)(one.Extend())
	released(t)(one.Check(ctx))
	expect(t, "the lease is new", time.Until(one.Until()) > 50*time.Second, true)
	released(t)(other.Unlock())
	released(t)(one.Extend())
	released(t)(one.Unlock())
}

func TestARenewalThatBindsOutlivesItsContext(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Minute), WithLinger(10*time.Second))
	must(t, mutex.Lock())
	before := mutex.bound
	late := newHeldBack(locks, "LOCK.ACQUIRE")
	within, cancel := context.WithCancel(ctx)
	renewal := inBackground(func() error {
		_, err := mutex.ExtendContext(within)
		return err
	})
	<-late.arrived
	cancel()
	close(late.goOn)
	must(t, result(t, renewal))
	expect(t, "it depends on another connection", mutex.bound != before, true)
}

func TestAnUnlockThatFailsGivesItsConnectionBack(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute), WithLinger(10*time.Second))
	must(t, mutex.Lock())
	within, cancel := context.WithCancel(ctx)
	cancel()
	_, err := mutex.UnlockContext(within)
	expect(t, "an error", err != nil, true)
	expect(t, "the connection is given back", mutex.bound == nil, true)
	released(t)(mutex.Unlock())
}

func TestARenewalWhoseBindingGetsNoAnswerCountsForTheLinger(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	mutex := locks.NewMutex("a", WithExpiry(time.Minute), WithLinger(10*time.Second))
	must(t, mutex.Lock())
	late := newHeldBack(locks, "LOCK.ACQUIRE")
	renewal := inBackground(func() error {
		_, err := mutex.Extend()
		return err
	})
	<-late.arrived
	proxy.cut(0, true)
	close(late.goOn)
	expect(t, "an error of the connection", errors.As(result(t, renewal), new(*RedisError)), true)
	expect(t, "the lease is shorter", time.Until(mutex.Until()) < 10*time.Second, true)
}

func TestAWriterWhoseDowngradeGetsNoAnswerIsNoWriter(t *testing.T) {
	proxy := newProxy(t)
	// With a linger the library does not send it again.
	both := newLocksAt(t, proxy.addr).NewRWMutex("a", oneToken, WithExpiry(time.Minute), WithLinger(time.Minute))
	must(t, both.Lock())
	within, stop := both.KeepAlive(ctx)
	defer stop()
	proxy.swallow.Store(true)
	err := both.TryRLock()
	expect(t, "an error of the connection", errors.As(err, new(*RedisError)), true)
	failed(t, nil)(both.Check(ctx))
	failed(t, ErrExtendFailed)(both.Extend())
	eventually(t, "the end of its context", func() bool { return errors.Is(context.Cause(within), ErrNotHeld) })
	must(t, locksTo(t, server.Addr).NewMutex("a").TryLock())
}

func TestWhatASecondRequestGivesBackIsNotHeld(t *testing.T) {
	for _, ofReader := range []bool{false, true} {
		proxy := newProxy(t)
		both := newLocksAt(t, proxy.addr).NewRWMutex("a", oneToken, WithExpiry(time.Minute), WithLinger(time.Minute))
		side := both.Mutex
		if ofReader {
			side = both.Reader()
		}
		must(t, side.Lock())
		proxy.swallow.Store(true)
		err := side.TryLock()
		expect(t, "an error of the connection", errors.As(err, new(*RedisError)), true)
		expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
		expect(t, "the lease goes on", time.Now().Before(side.Until()), false)
	}
}

func TestADowngradeThatIsSentAgainUnderAGuardKeepsTheShare(t *testing.T) {
	guarded, err := testserver.Start("max-ttl", "60000")
	must(t, err)
	defer guarded.Stop()
	client := clientOf(t, guarded)
	proxy := newProxyTo(t, guarded.Addr)
	locks := locksTo(t, proxy.addr)
	both, lost := locks.NewRWMutex("a", oneToken, WithExpiry(time.Minute)), locks.NewRWMutex("b", oneToken, WithExpiry(time.Minute))
	must(t, both.Lock())
	must(t, lost.Lock())
	must(t, client.ConfigSet(ctx, "lock.guard", "failover").Err())
	proxy.swallow.Store(true)
	must(t, both.RLock())
	expect(t, "requests for the share", callsAt(t, client, "rwlock.rlock"), 2)
	expect(t, "the fence", both.Reader().Fence(), both.Fence())
	failed(t, nil)(both.Check(ctx))
	must(t, both.RLock())
	released(t)(both.Reader().Check(ctx))

	must(t, client.Del(ctx, "b").Err())
	refused(t, lost.TryRLock())
	expect(t, "one that has nothing is told", time.Now().Before(lost.Until()), false)
}

func TestAWaitPausesWhileAGuardAnswersItAtOnce(t *testing.T) {
	guarded, err := testserver.Start("max-ttl", "2000")
	must(t, err)
	defer guarded.Stop()
	client := clientOf(t, guarded)
	locks := locksTo(t, guarded.Addr)
	// They are granted, nobody hears of it, and then the guard grants nothing for a while.
	locks.waiters.driver = &lostReply{Driver: locks.driver, happens: func() {
		if err := client.ConfigSet(ctx, "lock.guard", "restart").Err(); err != nil {
			t.Error(err)
		}
	}}
	mutex := locks.NewMultiMutex([]string{"a", "b"}, nil, WithTries(forever), WithExpiry(2*time.Second))
	must(t, result(t, inBackground(mutex.Lock)))
	asked := callsAt(t, client, "lock.macquire")
	expect(t, fmt.Sprint("it asks again, with pauses: ", asked), asked > 2 && asked < 100, true)
}

func TestAShareWhoseLeaseIsOverIsReleased(t *testing.T) {
	both := newLocks(t).NewRWMutex("a", oneToken, WithExpiry(time.Minute))
	must(t, both.Lock())
	// As if a guard had said null for so long.
	_, err := both.reader.goOnReading(ctx, both.held(), time.Now(), redis.Nil)
	expect(t, "null", errors.Is(err, redis.Nil), true)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	failed(t, ErrExtendFailed)(both.Extend())
}
