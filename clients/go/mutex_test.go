package redislock

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestLockAndUnlock(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a")
	expect(t, "name", mutex.Name(), "a")
	expect(t, "value before", mutex.Value(), "")
	expect(t, "until before", mutex.Until().IsZero(), true)
	must(t, mutex.Lock())
	expect(t, "a token of 16 bytes", len(mutex.Value()), 24)
	if left := time.Until(mutex.Until()); left > 7920*time.Millisecond || left < 4*time.Second {
		t.Fatalf("8s less the drift should be left, not %v", left)
	}
	released(t)(mutex.Valid())
	released(t)(mutex.Unlock())

	failed(t, nil)(mutex.Valid())
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())
	failed(t, ErrLockAlreadyExpired)(locks.NewMutex("a").Unlock())
}

func TestTakenIsRedsyncsError(t *testing.T) {
	locks := newLocks(t)
	holder := locks.NewMutex("a")
	must(t, holder.Lock())
	other := locks.NewMutex("a")
	err := other.TryLock()
	var errTaken *ErrTaken
	expect(t, "errors.As", errors.As(err, &errTaken), true)
	expect(t, "nodes", len(errTaken.Nodes), 1)
	expect(t, "errors.Is", errors.Is(err, &ErrTaken{}), true)
	expect(t, "not ErrFailed", errors.Is(err, ErrFailed), false)
	expect(t, "no value", other.Value(), "")

	failed(t, nil)(other.Valid())
	released(t)(holder.Unlock())
	must(t, other.TryLock())
	if other.Fence() <= holder.Fence() {
		t.Fatalf("fences: %d, then %d", holder.Fence(), other.Fence())
	}
}

func TestWithValueMovesTheOwnership(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a")
	must(t, mutex.Lock())
	elsewhere := locks.NewMutex("a", WithValue(mutex.Value()), WithExpiry(time.Hour))
	released(t)(elsewhere.Extend())
	if left := admin.PTTL(ctx, "a").Val(); left < 59*time.Minute {
		t.Fatalf("an hour should be left, not %v", left)
	}
	released(t)(elsewhere.Unlock())
}

func TestGenValueFunc(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithGenValueFunc(func() (string, error) { return "mine", nil }))
	must(t, mutex.Lock())
	expect(t, "value", mutex.Value(), "mine")
	trouble := errors.New("no entropy")
	mutex = locks.NewMutex("b", WithGenValueFunc(func() (string, error) { return "", trouble }))
	expect(t, "error", errors.Is(mutex.Lock(), trouble), true)
}

func TestExpiry(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(100*time.Millisecond))
	must(t, mutex.Lock())
	eventually(t, "expiry", func() bool { return admin.Exists(ctx, "a").Val() == 0 })
	expect(t, "until is over when the lock is", time.Now().After(mutex.Until()), true)

	ok, err := mutex.Extend()
	expect(t, "extended", ok, false)
	expect(t, "ErrExtendFailed", errors.Is(err, ErrExtendFailed), true)
	expect(t, "ErrTaken, as redsync has it", errors.Is(err, &ErrTaken{}), true)
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())

	failed(t, ErrExtendFailed)(locks.NewMutex("a").Extend())
}

func TestAnExpiryOfWhichNothingIsLeftIsRefused(t *testing.T) {
	locks := newLocks(t)
	refuses := func(what string, err error) {
		t.Helper()
		expect(t, fmt.Sprint(what, ": ", err), err != nil && strings.Contains(err.Error(), "too short"), true)
	}
	for _, expiry := range []time.Duration{-time.Second, 0, time.Millisecond, 3 * time.Millisecond} {
		option := WithExpiry(expiry)
		refuses("Lock", locks.NewMutex("a", option).Lock())
		refuses("TryLock", locks.NewMutex("a", option).TryLock())
		refuses("RLock", locks.NewRWMutex("a", option).RLock())
		refuses("several", locks.NewMultiMutex([]string{"a"}, nil, option).Lock())
		_, err := locks.NewSemaphore("a", 2, option).Acquire(ctx)
		refuses("a permit", err)
		ran, err := locks.RunOnce(ctx, "a", expiry, 0, nil)
		expect(t, "ran", ran, false)
		expect(t, "an error", err != nil, true)
	}
	refuses("the drift takes all", locks.NewMutex("a", WithDriftFactor(1)).Lock())
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	must(t, locks.NewMutex("a", WithExpiry(4*time.Millisecond)).wrong())
}

func TestExtend(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	must(t, admin.PExpire(ctx, "a", time.Second).Err())
	until, fence := mutex.Until(), mutex.Fence()
	released(t)(mutex.Extend())
	expect(t, "until moved", mutex.Until().After(until), true)
	expect(t, "fence stays", mutex.Fence(), fence)
	if left := admin.PTTL(ctx, "a").Val(); left < 50*time.Second {
		t.Fatalf("a minute should be left, not %v", left)
	}
}

func TestSetNXOnExtend(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a", WithSetNXOnExtend())
	must(t, mutex.Lock())
	fence := mutex.Fence()
	must(t, admin.Del(ctx, "a").Err())
	released(t)(mutex.Extend())
	expect(t, "a new fence", mutex.Fence() > fence, true)

	must(t, admin.Del(ctx, "a").Err())
	must(t, locks.NewMutex("a").Lock())
	failed(t, ErrExtendFailed)(mutex.Extend())
}

func TestOldClientsString(t *testing.T) {
	locks := newLocks(t)
	mutex := locks.NewMutex("a")
	must(t, mutex.Lock())
	must(t, admin.Set(ctx, "a", "old", time.Minute).Err()) // a SET without NX: forced away
	failed(t, &ErrTaken{})(mutex.Unlock())
	failed(t, ErrExtendFailed)(mutex.Extend())
	failed(t, nil)(mutex.Valid())
	expect(t, "ErrTaken", errors.Is(mutex.TryLock(), &ErrTaken{}), true)
	expect(t, "old value", admin.Get(ctx, "a").Val(), "old")
}

func TestErrorsOfTheServerAreNotWaitedOut(t *testing.T) {
	locks := newLocks(t)
	start := time.Now()
	err := locks.NewMutex("a", WithGrace(2*time.Hour), WithTries(1000)).Lock()
	var redisError *RedisError
	expect(t, "RedisError", errors.As(err, &redisError), true)
	if took := time.Since(start); took > 30*time.Second {
		t.Fatalf("it waited for %v", took)
	}
}

func TestPatience(t *testing.T) {
	locks := newLocks(t)
	for _, c := range []struct {
		tries  int
		delay  time.Duration
		result time.Duration
	}{
		{1, time.Second, 0},
		{0, time.Second, 0},
		{4, 100 * time.Millisecond, 300 * time.Millisecond},
		{4, -time.Second, 0},
		{1_000_001, time.Second, 1_000_000 * time.Second},
	} {
		mutex := locks.NewMutex("a", WithTries(c.tries), WithRetryDelay(c.delay))
		expect(t, "patience", mutex.patience(), c.result)
	}
	if d := locks.NewMutex("a", WithTries(math.MaxInt), WithRetryDelay(time.Hour)).patience(); d < 100*365*24*time.Hour {
		t.Fatalf("for ever is %v", d)
	}
	var asked []int
	locks.NewMutex("a", WithTries(4), WithRetryDelayFunc(func(try int) time.Duration {
		asked = append(asked, try)
		return time.Second
	})).patience()
	expect(t, "delays asked for", len(asked), 3)
	expect(t, "the first", asked[0], 1)
	if d := locks.NewMutex("a").patience(); d < 31*50*time.Millisecond || d > 31*250*time.Millisecond {
		t.Fatalf("by default it waits for %v", d)
	}
	// What redsync's options without a meaning here must not do: fail.
	must(t, locks.NewMutex("a", WithFailFast(true), WithShufflePools(true), WithTimeoutFactor(1), WithDriftFactor(0.1)).Lock())
}

// extendLate begins an Extend whose reply is there and not yet read. What it returns lets it be read and waits for that.
func extendLate(t *testing.T, mutex *Mutex) func() (bool, error) {
	t.Helper()
	late := newLateReply(mutex.locks, "LOCK.RENEW")
	var ok bool
	done := inBackground(func() (err error) {
		ok, err = mutex.Extend()
		return err
	})
	<-late.arrived
	return func() (bool, error) {
		close(late.goOn)
		return ok, result(t, done)
	}
}

func TestALateExtensionLeavesTheNextHoldAlone(t *testing.T) {
	for name, option := range map[string]Option{
		"with a token of its own": ignored,
		"with the same token":     WithGenValueFunc(func() (string, error) { return "mine", nil }),
	} {
		t.Run(name, func(t *testing.T) {
			mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute), option)
			must(t, mutex.Lock())
			finish := extendLate(t, mutex)
			released(t)(mutex.Unlock())
			must(t, mutex.Lock())
			value, fence, until := mutex.Value(), mutex.Fence(), mutex.Until()

			released(t)(finish())
			expect(t, "value", mutex.Value(), value)
			expect(t, "fence", mutex.Fence(), fence)
			expect(t, "until", mutex.Until(), until)
			released(t)(mutex.Unlock())
			expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
		})
	}
}

func TestALateExtensionDoesNotTakeTheLockAgainBesideTheNextHold(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute), WithSetNXOnExtend())
	must(t, mutex.Lock())
	must(t, admin.Del(ctx, "a").Err()) // lost: the renewal is answered with 0
	finish := extendLate(t, mutex)
	must(t, mutex.Lock())
	released(t)(mutex.Unlock())

	failed(t, ErrExtendFailed)(finish())
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
}

func TestAnExtensionDoesNotTakeTheLockAgainThatWasUnlocked(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute), WithSetNXOnExtend())
	must(t, mutex.Lock())
	finish := extendLate(t, mutex)
	released(t)(mutex.Unlock())
	failed(t, ErrExtendFailed)(finish())
	failed(t, ErrExtendFailed)(mutex.Extend())
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)

	must(t, mutex.Lock())
	must(t, admin.Del(ctx, "a").Err())
	released(t)(mutex.Extend())
	released(t)(mutex.Unlock())
}

func TestAnUnlockReleasesWhatAnExtensionIsTakingAgain(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute), WithSetNXOnExtend())
	must(t, mutex.Lock())
	must(t, admin.Del(ctx, "a").Err())
	late := newLateReply(mutex.locks, "LOCK.ACQUIRE")
	extension := inBackground(func() error {
		_, err := mutex.Extend()
		return err
	})
	<-late.arrived
	must(t, admin.ConfigResetStat(ctx).Err())
	unlock := inBackground(func() error {
		_, err := mutex.Unlock()
		return err
	})
	// The release may come first, if nothing keeps it.
	for began := time.Now(); time.Since(began) < 300*time.Millisecond && calls(t, "lock.release") == 0; {
		time.Sleep(2 * time.Millisecond)
	}
	close(late.goOn)
	must(t, result(t, extension))
	must(t, result(t, unlock))
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	expect(t, "the lease goes on", time.Now().Before(mutex.Until()), false)
}

func TestUntilDoesNotGoBackWhenRepliesOvertakeEachOther(t *testing.T) {
	mutex := newLocks(t).NewMutex("a", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	finish := extendLate(t, mutex)
	_, err := mutex.Extend()
	must(t, err)
	until := mutex.Until()
	_, err = finish()
	must(t, err)
	expect(t, "until", mutex.Until(), until)
}
