package redislock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

var (
	minute = WithExpiry(time.Minute)
	// oneToken makes an upgrade of a reader's Lock: both sides have the same value.
	oneToken = WithGenValueFunc(func() (string, error) { return "mine", nil })
)

func TestAMutexHasRedsyncsErrors(t *testing.T) {
	locks, _ := behindProxy(t)
	mutex, other := locks.NewMutex("a"), locks.NewMutex("a")
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())
	failed(t, ErrExtendFailed)(mutex.Extend())
	hold, err := mutex.Acquire(ctx)
	must(t, err)
	expect(t, "one hold", hold.Token() == mutex.Value() && hold.Fence() == mutex.Fence(), true)
	err = other.TryLock()
	var errTaken *ErrTaken
	expect(t, "errors.As", errors.As(err, &errTaken) && len(errTaken.Nodes) == 1, true)
	expect(t, "errors.Is", errors.Is(err, &ErrTaken{}) && !errors.Is(err, ErrFailed), true)
	released(t)(mutex.Unlock())
	failed(t, ErrLockAlreadyExpired)(mutex.Unlock())
	expect(t, "the lease is over, and the value stays", !time.Now().Before(mutex.Until()) && mutex.Value() != "", true)
	must(t, other.TryLock())
	must(t, admin.Del(ctx, "a").Err())
	_, err = other.Extend()
	says(t, err, ErrExtendFailed)
	refused(t, err)
}

func TestWithValueMovesTheOwnership(t *testing.T) {
	locks, _ := behindProxy(t)
	mutex := locks.NewMutex("a")
	must(t, mutex.Lock())
	elsewhere := locks.NewMutex("a", WithValue(mutex.Value()), WithExpiry(time.Hour), WithLinger(time.Second))
	expect(t, "nobody knows its lease", elsewhere.Until().IsZero(), true)
	released(t)(elsewhere.Extend())
	expect(t, "it depends on no connection", time.Until(elsewhere.Until()) > 59*time.Minute, true)
	released(t)(elsewhere.Check(ctx))
	must(t, elsewhere.Exec(ctx, "SET", "n", 1).Err())
	released(t)(elsewhere.Unlock())
}

func TestSetNXOnExtendTakesALostLockAgainButNotAReleasedOne(t *testing.T) {
	locks, _ := behindProxy(t)
	mutex := locks.NewMutex("a", WithSetNXOnExtend(), minute)
	must(t, mutex.Lock())
	fence := mutex.Fence()
	must(t, admin.Del(ctx, "a").Err())
	released(t)(mutex.Extend())
	expect(t, "a new fence", mutex.Fence() > fence, true)
	within, stop := mutex.KeepAlive(ctx)
	defer stop()
	released(t)(mutex.Unlock())
	failed(t, ErrExtendFailed)(mutex.Extend())
	<-within.Done()
	says(t, context.Cause(within), ErrNotHeld)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	must(t, mutex.Lock())
	must(t, admin.Del(ctx, "a").Err())
	must(t, locks.NewMutex("a").Lock())
	failed(t, ErrExtendFailed)(mutex.Extend())
}

// An Unlock waits for an Extend that is taking the lock again, and releases what it has got.
func TestAnUnlockReleasesWhatAnExtensionIsTakingAgain(t *testing.T) {
	locks, _ := behindProxy(t)
	mutex := locks.NewMutex("a", minute, WithSetNXOnExtend())
	must(t, mutex.Lock())
	must(t, admin.Del(ctx, "a").Err())
	late := &lateReply{Driver: locks.client.Driver, arrived: make(chan struct{}), goOn: make(chan struct{})}
	locks.client.Driver = late
	extension := inBackground(t, func() error { _, err := mutex.Extend(); return err })
	<-late.arrived
	unlock := inBackground(t, func() error { _, err := mutex.Unlock(); return err })
	close(late.goOn)
	must(t, extension())
	if err := unlock(); err != nil { // It came before the Extend looked whether it may.
		says(t, err, ErrLockAlreadyExpired)
	}
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
}

// A lateReply keeps the answer to an acquire back.
type lateReply struct {
	driver.Driver
	arrived, goOn chan struct{}
}

func (l *lateReply) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	replies := l.Driver.Send(ctx, commands...)
	if commands[0].Args[0] == "LOCK.ACQUIRE" {
		close(l.arrived)
		<-l.goOn
	}
	return replies
}

func TestPatienceIsTheSumOfTheDelays(t *testing.T) {
	locks := NewWith(nil)
	for _, c := range []struct {
		tries         int
		delay, result time.Duration
	}{
		{1, time.Second, 0},
		{4, 100 * time.Millisecond, 300 * time.Millisecond},
		{4, -time.Second, 0},
		{1_000_001, time.Second, 1_000_000 * time.Second},
		{math.MaxInt, time.Hour, math.MaxInt64/2 + 1},
	} {
		expect(t, "patience", locks.NewMutex("a", WithTries(c.tries), WithRetryDelay(c.delay)).patience(), c.result)
	}
	counted := WithRetryDelayFunc(func(try int) time.Duration { return time.Duration(try) })
	expect(t, "delays of 1 to 3", locks.NewMutex("a", WithTries(4), counted).patience(), 6)
	d := locks.NewMutex("a").patience()
	expect(t, "by default", d >= 31*50*time.Millisecond && d <= 31*250*time.Millisecond, true)
}

func TestExecAnswersAsGoRedisDoes(t *testing.T) {
	locks, _ := behindProxy(t)
	mutex := locks.NewMutex("a", minute)
	says(t, mutex.Exec(ctx, "INCR", "n").Err(), ErrNotHeld)
	must(t, mutex.Lock())
	n, err := mutex.Exec(ctx, "INCR", "n").Int()
	must(t, err)
	expect(t, "its reply", n, 1)
	says(t, mutex.Exec(ctx, "GET", "nothing").Err(), redis.Nil)
	_, own := mutex.Exec(ctx, "LPUSH", "n", "x").Err().(redis.Error)
	expect(t, "an error is its own, too", own, true)
	must(t, mutex.Exec(ctx, "HSET", "h", "d", time.Second, "t", true, "f", 1.5, "b", []byte("x"), "n", nil, "w", time.Now()).Err())
	expect(t, "arguments", admin.HGet(ctx, "h", "d").Val()+admin.HGet(ctx, "h", "t").Val()+admin.HGet(ctx, "h", "f").Val(), "100000000011.5")
	must(t, admin.Set(ctx, "a", "an old client's", 0).Err())
	failed(t, nil)(mutex.Check(ctx))
	says(t, mutex.Exec(ctx, "INCR", "n").Err(), ErrNotHeld, "not held")
}

func TestAJobHasAContextAndGivesTheLockBack(t *testing.T) {
	locks, _ := behindProxy(t)
	trouble := errors.New("trouble")
	within, cancel := context.WithCancelCause(ctx)
	options := append(make([]Option, 0, 2), WithTries(1))
	ran, err := locks.RunOnce(within, "a", time.Minute, 0, func(ctx context.Context, mutex *Mutex) error {
		released(t)(mutex.Extend())
		cancel(trouble)
		<-ctx.Done()
		return context.Cause(ctx)
	}, options...)
	expect(t, "ran, and failed", ran && errors.Is(err, trouble), true)
	expect(t, "the caller's options", options[:2][1] == nil, true)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
	_, err = locks.RunOnce(ctx, "a", time.Second, time.Minute, nil)
	says(t, err, nil, "atLeast")
	ran, err = locks.RunOnce(ctx, "a", time.Second, 0, func(ctx context.Context, mutex *Mutex) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	expect(t, "ran, and was told of its end", ran && errors.Is(err, ErrNotHeld), true)

	own, admin := started(t)
	within, cancel = context.WithCancelCause(ctx)
	_, err = locksTo(t, own.Addr).RunOnce(within, "a", time.Hour, 0, func(context.Context, *Mutex) error {
		cancel(trouble)
		return admin.ConfigSet(ctx, "min-replicas-to-write", "1").Err() // The release is tried again, but not for an hour.
	})
	says(t, err, context.Canceled)
}

func TestNoNamesAndNoPermitsAreRefused(t *testing.T) {
	locks, _ := behindProxy(t)
	none := locks.NewMultiMutex(nil, []string{}, WithSetNXOnExtend(), WithValue("mine"))
	expect(t, "its name", none.Name(), "")
	says(t, none.Lock(), nil, "at least one name")
	permit, err := locks.NewSemaphore("a", 0).TryAcquire(ctx)
	says(t, err, nil, "LIMIT needs an integer from 1")
	expect(t, "none beside it", permit == nil, true)
	expect(t, "its name", locks.NewMultiMutex([]string{"b"}, []string{"a"}).Name(), "b")
	expect(t, "holds left", admin.DBSize(ctx).Val(), 0)
}

func TestARingOrAnUnknownClientIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
	defer ring.Close()
	for _, client := range []redis.UniversalClient{ring, struct{ *redis.Ring }{ring}, struct{ redis.UniversalClient }{}, nil} {
		_, err := Open(client)
		says(t, err, ErrClient)
	}
	defer func() {
		panicked, _ := recover().(error)
		says(t, panicked, ErrClient)
	}()
	defer New(ring)
	embedded := New(struct{ *redis.Client }{admin})
	defer embedded.Close()
	must(t, embedded.NewMutex("embedded").Lock())
}

// A downgrade that is sent again under a guard keeps the share, which the guard does not grant a second time.
func TestADowngradeUnderAGuard(t *testing.T) {
	guarded, client := started(t, "max-ttl", "60000")
	proxy := newProxy(t, guarded.Addr)
	locks := locksTo(t, proxy.addr)
	both, lost := locks.NewRWMutex("a", oneToken, minute), locks.NewRWMutex("b", oneToken, minute)
	must(t, both.Lock())
	must(t, lost.Lock())
	must(t, client.ConfigSet(ctx, "lock.guard", "failover").Err())
	proxy.loses("RLOCK")
	must(t, both.RLock())
	expect(t, "requests for the share", calls(t, client, "rwlock.rlock"), 2)
	expect(t, "the fence", both.Reader().Fence(), both.Fence())
	failed(t, nil)(both.Check(ctx))
	must(t, both.RLock())
	adopted := locks.NewRWMutex("a", oneToken, minute, WithValue("mine"))
	released(t)(adopted.Reader().Extend())
	must(t, adopted.RLock())
	released(t)(adopted.Reader().Check(ctx))
	must(t, client.Del(ctx, "b").Err())
	refused(t, lost.TryRLock())
	expect(t, "one that has nothing is told", time.Now().Before(lost.Until()), false)
}

func TestConversions(t *testing.T) {
	locks, proxy := behindProxy(t)
	for _, linger := range []Option{func(*Mutex) {}, WithLinger(20 * time.Second)} {
		must(t, admin.FlushAll(ctx).Err())
		both, other := locks.NewRWMutex("a", oneToken, minute, linger), locks.NewRWMutex("a")
		must(t, both.RLock())
		must(t, other.RLock())
		refused(t, both.TryLock())
		released(t)(both.Reader().Extend()) // It goes on reading.
		released(t)(other.RUnlock())
		must(t, both.Lock())
		failed(t, ErrExtendFailed)(both.Reader().Extend())
		refused(t, other.TryRLock())
		within, stop := both.KeepAlive(ctx)
		defer stop()
		must(t, both.RLock())
		<-within.Done()
		failed(t, ErrExtendFailed)(both.Extend())
		must(t, other.TryRLock())
		released(t)(both.Unlock()) // of either side
		expect(t, "the reader's lease", time.Now().Before(both.Reader().Until()), false)
		released(t)(other.RUnlock())

		// A downgrade that is not answered may have made a reader of the writer, and one that is not sent has not.
		must(t, both.Lock())
		says(t, both.RLockContext(within), ErrFailed)
		released(t)(both.Check(ctx))
		proxy.cut()
		says(t, both.TryRLock(), nil)
		proxy.join()
		failed(t, nil)(both.Check(ctx))
		failed(t, ErrExtendFailed)(both.Extend())
	}
}
