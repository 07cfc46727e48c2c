package redislock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
)

func tryAgainReply() driver.Reply {
	return driver.Reply{Err: driver.Error("TRYAGAIN not enough servers have confirmed it"), Sent: 1}
}

func TestALeaseCountsFromTheSendingLessTheDrift(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(100*time.Second))
	must(t, mutex.Lock())
	sent := time.Now()
	expect(t, "the lease", mutex.untilFrom(sent).Sub(sent), 98_998*time.Millisecond)
	finish := extendLate(t, mutex)
	time.Sleep(100 * time.Millisecond) // the reply is on its way
	_, err := finish()
	must(t, err)
	if early := mutex.Until().Sub(sent.Add(98_998 * time.Millisecond)); early < 0 || early > 90*time.Millisecond {
		t.Fatalf("it counts from %v after the sending", early)
	}
}

func TestALeaseThatIsOverStaysLost(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(200*time.Millisecond))
	must(t, mutex.Lock())
	must(t, admin.Do(ctx, "LOCK.RENEW", "a", mutex.Value(), 60_000).Err())
	eventually(t, "the end of the lease", func() bool { return time.Now().After(mutex.Until()) })
	failed(t, nil)(mutex.Check(ctx))
	failed(t, nil)(mutex.Valid())
	failed(t, ErrExtendFailed)(mutex.Extend())
}

func TestAnUnlockWithoutAReplyEndsTheLease(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := mutex.UnlockContext(gone)
	expect(t, "an error", err != nil, true)
	// The server has not got it.
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 1)
	failed(t, ErrExtendFailed)(mutex.Extend())
}

func TestAnUnlockEndsTheContextOfTheLease(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	isOver := leaseOf(t, mutex)
	released(t)(mutex.Unlock())
	eventually(t, "the end of its context", isOver)
}

func TestAnotherHoldAtOnceDoesNotKeepTheContextOfTheFirstOne(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	fence := mutex.Fence()
	for _, value := range []string{"another", "another", mutex.Value()} {
		isOver := leaseOf(t, mutex)
		fence++
		// As an Unlock and a Lock before the one who waits for the end has had its turn.
		processors := runtime.GOMAXPROCS(1)
		mutex.giveUp()
		mutex.remember(hold{value: value, fence: fence, sent: time.Now()})
		runtime.GOMAXPROCS(processors)
		eventually(t, "the end of its context", isOver)
	}
}

// leaseOf has a context that ends with the lease, and tells whether it has ended.
func leaseOf(t *testing.T, mutex *Mutex) (isOver func() bool) {
	t.Helper()
	within, cancel := mutex.whileLeased(ctx)
	t.Cleanup(func() { cancel(nil) })
	eventually(t, "the wait for the end", func() bool {
		mutex.mu.Lock()
		defer mutex.mu.Unlock()
		return mutex.early != nil
	})
	return func() bool { return errors.Is(context.Cause(within), ErrNotHeld) }
}

func TestAnExtensionDoesNotBeginALeaseAnewThatHasEndedMeanwhile(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	extension := mutex.held()
	mutex.giveUp()
	expect(t, "remembered", mutex.rememberExtended(extension), false)
	expect(t, "the lease is over", time.Now().Before(mutex.Until()), false)
}

func TestALateGrantThatIsLostIsAskedForAgain(t *testing.T) {
	for _, reply := range []driver.Reply{{Value: int64(0), Sent: 1}, tryAgainReply()} {
		locks := newLocks(t)
		fake := &fakeReply{Driver: locks.driver, reply: reply}
		fake.left.Store(1)
		locks.driver = fake
		holder := locks.NewMutex("a", WithExpiry(time.Minute))
		must(t, holder.Lock())
		mutex := locks.NewMutex("a", WithExpiry(2*time.Second), WithTries(forever))
		done := inBackground(mutex.Lock)
		eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
		must(t, admin.ConfigResetStat(ctx).Err())
		time.Sleep(300 * time.Millisecond)
		released(t)(holder.Unlock())
		must(t, result(t, done))
		expect(t, "further acquires", calls(t, "lock.acquire") >= 1, true)
		released(t)(mutex.Unlock())
	}
}

func TestTryAgainLosesNothing(t *testing.T) {
	locks := newLocks(t)
	fake := &fakeReply{Driver: locks.driver, reply: tryAgainReply()}
	locks.driver = fake
	mutex := locks.NewMutex("a", WithExpiry(2*time.Second))
	must(t, mutex.Lock())
	fake.left.Store(2)
	sent := time.Now()
	released(t)(mutex.Extend())
	expect(t, "Until counts from the last sending", mutex.Until().Sub(sent) > 2*time.Second, true)

	fake.left.Store(1_000_000)
	failed(t, ErrExtendFailed)(mutex.Extend())
	expect(t, "until the lease was over", time.Now().After(mutex.Until()), true)
}

func TestALockIsKeptAliveUntilItIsLost(t *testing.T) {
	locks := newLocks(t)
	for _, loss := range [][]any{{"DEL", "a"}, {"SET", "a", "a string"}} {
		mutex := locks.NewMutex("a", WithExpiry(600*time.Millisecond))
		must(t, mutex.Lock())
		fence := mutex.Fence()
		within, stop := mutex.KeepAlive(ctx)
		time.Sleep(1300 * time.Millisecond)
		must(t, within.Err())
		released(t)(mutex.Check(ctx))
		must(t, admin.Do(ctx, loss...).Err())
		start := time.Now()
		<-within.Done()
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Fatalf("its loss was told after %v", took)
		}
		expect(t, "ErrNotHeld", errors.Is(context.Cause(within), ErrNotHeld), true)
		expect(t, "the fence is the one that was lost", mutex.Fence(), fence)
		stop()
		must(t, admin.Del(ctx, "a").Err())
	}
}

func TestALockThatIsStoppedIsKeptAliveNoMore(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(500*time.Millisecond), WithSetNXOnExtend())
	must(t, mutex.Lock())
	within, stop := mutex.KeepAlive(ctx)
	stop()
	expect(t, "its context", errors.Is(within.Err(), context.Canceled), true)
	eventually(t, "the end of the lease", func() bool { return admin.Exists(ctx, "a").Val() == 0 })
	// One that takes a lost lock again on Extend is lost all the same.
	must(t, mutex.Lock())
	within, stop = mutex.KeepAlive(ctx)
	defer stop()
	must(t, admin.Del(ctx, "a").Err())
	<-within.Done()
	expect(t, "taken again", admin.Exists(ctx, "a").Val(), 0)
}

func TestTheDriftIsNotLessThanAGuardCountsOn(t *testing.T) {
	locks := newLocks(t)
	sent := time.Now()
	for factor, lease := range map[float64]time.Duration{0: 98_998 * time.Millisecond, 0.05: 94_998 * time.Millisecond} {
		mutex := locks.NewMutex("a", WithExpiry(100*time.Second), WithDriftFactor(factor))
		expect(t, "the lease", mutex.untilFrom(sent).Sub(sent), lease)
	}
}

func TestAnExpiryAboveMaxTTLSaysSo(t *testing.T) {
	bounded, err := testserver.Start("max-ttl", "1000")
	must(t, err)
	defer bounded.Stop()
	client := bounded.Client()
	defer client.Close()
	locks := locksTo(t, bounded.Addr)
	tooLong := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrExpiry) || !strings.Contains(err.Error(), "WithExpiry") || !strings.Contains(err.Error(), "lock.max-ttl") {
			t.Fatal(err)
		}
	}
	for _, mutex := range []*Mutex{
		locks.NewMutex("a"), locks.NewRWMutex("a").Reader(), locks.NewSemaphore("a", 2).newPermit(), locks.NewMultiMutex([]string{"a"}, nil).Mutex,
	} {
		must(t, client.ConfigResetStat(ctx).Err())
		tooLong(mutex.Lock())
		expect(t, "requests", callsAt(t, client, strings.ToLower(mutex.acquire)), 1)
	}
	mutex := locks.NewMutex("a", WithExpiry(time.Second))
	must(t, mutex.Lock())
	_, err = locks.NewMutex("a", WithValue(mutex.Value())).Extend()
	tooLong(err)
}

func TestAKeptLeaseCostsNoMoreMemoryTheLongerItLasts(t *testing.T) {
	mutex := newLocks(t).NewMutex("a")
	objects := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapObjects)
	}
	extend := func() {
		mutex.mu.Lock()
		defer mutex.mu.Unlock()
		mutex.until = time.Now().Add(15 * time.Millisecond)
	}
	extend()
	within, cancel := mutex.whileLeased(ctx)
	defer cancel(nil)
	before := objects()
	// Each end of a lease that has been extended meanwhile is a look at it.
	for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; time.Sleep(time.Millisecond) {
		extend()
	}
	if within.Err() != nil {
		t.Skip("the machine stood still, and the lease ended")
	}
	if more := objects() - before; more > 100 {
		t.Fatalf("%d objects more", more)
	}
}

func TestAKeepAliveThatBeginsLateRenewsInTime(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(9*time.Second))
	must(t, mutex.Lock())
	// As after a preparation of seven seconds. A third of the expiry is three.
	mutex.remember(hold{value: mutex.Value(), fence: mutex.Fence(), sent: time.Now().Add(-7 * time.Second)})
	within, stop := mutex.KeepAlive(ctx)
	defer stop()
	eventually(t, "a renewal, or the end", func() bool { return within.Err() != nil || time.Until(mutex.Until()) > 5*time.Second })
	must(t, context.Cause(within))
}

func TestALateGrantThatCannotBeRenewedIsGivenBack(t *testing.T) {
	for name, option := range map[string]Option{"": ignored, "with a linger": WithLinger(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			locks := newLocks(t)
			holder := locks.NewMutex("a", WithExpiry(time.Minute))
			must(t, holder.Lock())
			fake := &fakeReply{Driver: locks.driver, reply: driver.Reply{Err: driver.Error("NOPERM lock.renew"), Sent: 1}}
			fake.left.Store(1)
			locks.driver = fake
			mutex := locks.NewMutex("a", WithExpiry(2*time.Second), WithTries(forever), option)
			done := inBackground(mutex.Lock)
			eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
			time.Sleep(300 * time.Millisecond) // more than a tenth of the expiry
			released(t)(holder.Unlock())
			expect(t, "the error", says(result(t, done), "NOPERM"), true)
			expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
			if native, ok := fake.Driver.(*goRedis); ok {
				expect(t, "connections that are bound", len(native.bound), 0)
			}
		})
	}
}

// lateRenewal has a mutex wait for longer than a tenth of its expiry, and keeps the reply to the renewal after its grant back.
func lateRenewal(t *testing.T, locks *RedisLock, mutex *Mutex) (late *lateReply, done <-chan error) {
	t.Helper()
	holder := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, holder.Lock())
	late = newLateReply(locks, "LOCK.RENEW")
	done = inBackground(mutex.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	queued := time.Now()
	eventually(t, "more than a tenth of the expiry", func() bool { return time.Since(queued) > mutex.expiry/10 })
	released(t)(holder.Unlock())
	<-late.arrived
	return late, done
}

func TestAGrantThatIsHeardAfterItsLeaseIsNone(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Second), WithTries(forever))
	late, done := lateRenewal(t, locks, mutex)
	other := locksTo(t, server.Addr).NewMutex("a", WithExpiry(time.Minute), WithTries(forever))
	must(t, other.Lock())
	close(late.goOn)
	eventually(t, "an answer, or a place in the queue", func() bool { return waiting("a") == 1 || len(done) == 1 })
	expect(t, "believers beside the other", len(done), 0)
	released(t)(other.Unlock())
	must(t, result(t, done))
	expect(t, "its fence is the later one", mutex.Fence() > other.Fence(), true)
	expect(t, "its lease is not over", time.Now().Before(mutex.Until()), true)
}

func TestAGrantThatIsHeardAfterItsLeaseIsGivenBack(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Second), WithTries(2), WithRetryDelay(time.Second), oneToken)
	late, done := lateRenewal(t, locks, mutex)
	// The server's clock may be slower than ours.
	must(t, admin.Do(ctx, "LOCK.RENEW", "a", "mine", 60_000).Err())
	granted := time.Now()
	eventually(t, "the end of the lease", func() bool { return time.Since(granted) > mutex.expiry })
	close(late.goOn)
	refused(t, result(t, done))
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
}
