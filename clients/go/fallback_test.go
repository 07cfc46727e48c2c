package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// withoutTheModule starts a server that does not have it.
func withoutTheModule(t *testing.T) (addr string, plain *redis.Client) {
	t.Helper()
	server, err := testserver.StartWithoutModule()
	must(t, err)
	t.Cleanup(server.Stop)
	return server.Addr, clientOf(t, server)
}

// warnings returns what counts the warnings about the fallback, from now to the end of the test.
func warnings(t *testing.T) func() int {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() int { return strings.Count(said.String(), "no redis-lock module") }
}

// explained checks that an error says what to do about a server without the module.
func explained(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrModuleMissing) {
		t.Fatalf("%s: %v", what, err)
	}
	for _, part := range []string{"loadmodule /path/libredis_lock.so", "restart the server", "WithFallback", "no fence", "unknown command"} {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%s: %q does not say %q", what, err, part)
		}
	}
}

func TestWithoutTheModuleEveryErrorExplains(t *testing.T) {
	addr, plain := withoutTheModule(t)
	said := warnings(t)
	locks := locksTo(t, addr)
	explained(t, "Lock", locks.NewMutex("a").Lock())
	explained(t, "TryLock", locks.NewMutex("a").TryLock())
	explained(t, "RLock", locks.NewRWMutex("a").RLock())
	explained(t, "TryRLock", locks.NewRWMutex("a").TryRLock())
	explained(t, "WLock", locks.NewRWMutex("a").Lock())
	_, err := locks.NewSemaphore("a", 2).Acquire(ctx)
	explained(t, "Acquire", err)
	explained(t, "several", locks.NewMultiMutex([]string{"a", "b"}, nil).Lock())
	_, err = locks.RunOnce(ctx, "a", time.Minute, time.Second, nil)
	explained(t, "RunOnce", err)
	known := locks.NewMutex("a", WithValue("mine"))
	_, err = known.Unlock()
	explained(t, "Unlock", err)
	_, err = known.Extend()
	explained(t, "Extend", err)
	_, err = known.Check(ctx)
	explained(t, "Check", err)
	_, err = known.Valid()
	explained(t, "Valid", err)
	explained(t, "Exec", known.Exec(ctx, "SET", "b", 1).Err())
	expect(t, "keys", plain.DBSize(ctx).Val(), 0)
	expect(t, "warnings", said(), 0)
}

func TestTheFallbackHoldsExtendsAndReleases(t *testing.T) {
	addr, plain := withoutTheModule(t)
	said := warnings(t)
	locks := locksTo(t, addr, WithFallback())
	mutex := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	expect(t, "its string", plain.Get(ctx, "a").Val(), mutex.Value())
	expect(t, "no fence", mutex.Fence(), 0)
	if left := time.Until(mutex.Until()); left < 50*time.Second || left > time.Minute {
		t.Fatalf("until %v from now", left)
	}
	released(t)(mutex.Check(ctx))
	released(t)(mutex.Valid())
	refused(t, locks.NewMutex("a").TryLock())
	refused(t, locks.NewMutex("a", WithTries(3), WithRetryDelay(50*time.Millisecond)).Lock())

	must(t, plain.PExpire(ctx, "a", time.Second).Err())
	released(t)(mutex.Extend())
	expect(t, "extended", plain.PTTL(ctx, "a").Val() > 50*time.Second, true)
	released(t)(mutex.Unlock())
	expect(t, "holds left", plain.Exists(ctx, "a").Val(), 0)

	// A late owner changes nothing, also where the key has another type.
	for _, others := range [][]any{{"SET", "a", "another's"}, {"LPUSH", "a", "x"}} {
		must(t, mutex.Lock())
		must(t, plain.Del(ctx, "a").Err())
		must(t, plain.Do(ctx, others...).Err())
		ok, err := mutex.Extend()
		expect(t, "a late extension", !ok && errors.Is(err, ErrExtendFailed), true)
		ok, err = mutex.Check(ctx)
		expect(t, "a late check", ok || err != nil, false)
		ok, err = mutex.Unlock()
		expect(t, "a late release", !ok && errors.Is(err, ErrLockAlreadyExpired), true)
		refused(t, locks.NewMutex("a").TryLock())
		expect(t, "what is there", plain.Del(ctx, "a").Val(), 1)
	}

	again := locks.NewMutex("a", WithSetNXOnExtend())
	must(t, again.Lock())
	must(t, plain.Del(ctx, "a").Err())
	released(t)(again.Extend())
	expect(t, "taken again", plain.Get(ctx, "a").Val(), again.Value())
	released(t)(again.Unlock())

	ran, err := locks.RunOnce(ctx, "a", time.Minute, 0, func(context.Context, *Mutex) error { return nil })
	expect(t, "a job", ran && err == nil, true)
	expect(t, "warnings", said(), 1)
}

func TestTheFallbackSaysWhatItDoesNotHave(t *testing.T) {
	addr, plain := withoutTheModule(t)
	missing := func(what string, err error) {
		t.Helper()
		expect(t, fmt.Sprint(what, ": ", err), errors.Is(err, ErrModuleMissing) && strings.Contains(err.Error(), "not available in the fallback"), true)
	}
	for _, first := range []string{"Lock", "MultiMutex", "Check"} {
		t.Run("first use: "+first, func(t *testing.T) {
			locks := locksTo(t, addr, WithFallback())
			mutex := locks.NewMutex("a")
			switch first {
			case "Lock":
				must(t, mutex.Lock())
			case "MultiMutex":
				missing("several", locks.NewMultiMutex([]string{"a", "b"}, nil).Lock())
				must(t, mutex.Lock())
			case "Check":
				must(t, plain.Set(ctx, "a", "mine", 0).Err())
				mutex = locks.NewMutex("a", WithValue("mine"))
				released(t)(mutex.Check(ctx))
			}
			missing("several", locks.NewMultiMutex([]string{"a", "b"}, nil).TryLock())
			missing("a reader", locks.NewRWMutex("b").RLock())
			missing("a writer", locks.NewRWMutex("b").TryLock())
			_, err := locks.NewSemaphore("b", 2).Acquire(ctx)
			missing("a permit", err)
			missing("linger", locks.NewMutex("b", WithLinger(time.Second)).Lock())
			missing("Exec", mutex.Exec(ctx, "SET", "b", 1).Err())
			_, err = locks.RunOnce(ctx, "b", time.Minute, time.Second, func(context.Context, *Mutex) error { panic("it shall not run") })
			missing("atLeast", err)
			released(t)(mutex.Unlock())
			expect(t, "keys", plain.DBSize(ctx).Val(), 0)
		})
	}
}

func TestTheFallbackWaitsAndGivesUp(t *testing.T) {
	addr, plain := withoutTheModule(t)
	locks := locksTo(t, addr, WithFallback())
	must(t, locks.NewMutex("a", WithExpiry(time.Minute)).Lock())
	within, cancel := context.WithCancel(ctx)
	done := inBackground(func() error { return locks.NewMutex("a", WithTries(forever)).LockContext(within) })
	cancel()
	err := result(t, done)
	expect(t, fmt.Sprint("cancelled: ", err), errors.Is(err, ErrFailed) && errors.Is(err, context.Canceled), true)
	before := plain.Get(ctx, "a").Val()
	refused(t, locks.NewMutex("a", WithTries(2), WithRetryDelay(100*time.Millisecond)).Lock())
	expect(t, "the holder's string", plain.Get(ctx, "a").Val(), before)
}

func TestTheFallbacksLostReplyIsHadByItsToken(t *testing.T) {
	addr, plain := withoutTheModule(t)
	proxy := newProxyTo(t, addr)
	locks := locksTo(t, proxy.addr, WithFallback())
	must(t, locks.NewMutex("b").TryLock())
	proxy.swallow.Store(true)
	mutex := locks.NewMutex("a", WithTries(forever), WithExpiry(time.Hour))
	must(t, result(t, inBackground(mutex.Lock)))
	expect(t, "swallowed", proxy.swallow.Load(), false)
	expect(t, "its string", plain.Get(ctx, "a").Val(), mutex.Value())
	proxy.swallow.Store(true)
	released(t)(mutex.Unlock())
	expect(t, "holds left", plain.Exists(ctx, "a").Val(), 0)
}

func TestWithTheModuleTheFallbackChangesNothing(t *testing.T) {
	said := warnings(t)
	must(t, admin.FlushAll(ctx).Err())
	locks := locksTo(t, server.Addr, WithFallback())
	mutex := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	expect(t, "a fence", mutex.Fence() > 0, true)
	expect(t, "the native type", admin.Type(ctx, "a").Val(), "redislock")
	waiter := inBackground(locks.NewMutex("a", WithTries(forever)).Lock)
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	released(t)(mutex.Unlock())
	must(t, result(t, waiter))
	must(t, locks.NewRWMutex("b").RLock())
	must(t, locks.NewMultiMutex([]string{"c", "d"}, nil).Lock())
	_, err := locks.NewSemaphore("e", 2).Acquire(ctx)
	must(t, err)
	expect(t, "warnings", said(), 0)
}

func TestAGrantOfTheFallbackThatIsHeardAfterItsLeaseIsGivenBack(t *testing.T) {
	addr, plain := withoutTheModule(t)
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("another has it: ", lost), func(t *testing.T) {
			locks := locksTo(t, addr, WithFallback())
			must(t, locks.NewMutex("b").Lock())
			must(t, plain.FlushAll(ctx).Err())
			late := newLateReply(locks, "SET")
			mutex := locks.NewMutex("a", WithExpiry(time.Second))
			done := inBackground(mutex.TryLock)
			<-late.arrived
			granted, left := time.Now(), int64(0)
			if lost {
				left = 1
				must(t, plain.Set(ctx, "a", "another's", time.Minute).Err())
			} else {
				must(t, plain.Persist(ctx, "a").Err())
			}
			eventually(t, "the end of the lease", func() bool { return time.Since(granted) > mutex.expiry })
			close(late.goOn)
			refused(t, result(t, done))
			expect(t, "holds left", plain.Exists(ctx, "a").Val(), left)
		})
	}
}

func TestARenewalOfTheFallbackThatIsHeardAfterItsLeaseIsNoGrant(t *testing.T) {
	addr, plain := withoutTheModule(t)
	locks := locksTo(t, addr, WithFallback())
	must(t, locks.NewMutex("b").Lock())
	mutex := locks.NewMutex("a", WithExpiry(time.Second))
	// As after a reply that was lost.
	must(t, plain.Set(ctx, "a", "mine", time.Minute).Err())
	late := newLateReply(locks, "EVAL")
	var err error
	done := inBackground(func() error {
		_, err = mutex.fallbackAsk(ctx, "mine", true)
		return nil
	})
	<-late.arrived
	eventually(t, "the end of the lease", func() bool { return plain.Exists(ctx, "a").Val() == 0 })
	close(late.goOn)
	must(t, result(t, done))
	expect(t, fmt.Sprint("it is late: ", err), errors.Is(err, errLate), true)
}
