package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// The result of these tests, and its lock.
const (
	page     = "page:7"
	pageLock = "{page:7}:once"
)

// value returns a maker of a value.
func value(text string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(text), nil }
}

func unused(context.Context) ([]byte, error) { panic("it shall not run") }

// got checks what Once returned.
func got(t *testing.T, want string) func([]byte, error) {
	return func(result []byte, err error) {
		t.Helper()
		must(t, err)
		expect(t, "the result", string(result), want)
	}
}

// isStored checks the result on the server, and that nobody holds or wants its lock.
func isStored(t *testing.T, want string) {
	t.Helper()
	expect(t, "on the server", admin.Get(ctx, page).Val(), want)
	expect(t, "locks", admin.Exists(ctx, pageLock).Val(), 0)
}

func TestOnceOneMakesTheResultAndAllOthersGetIt(t *testing.T) {
	const others = 20
	locks := newLocks(t)
	var made atomic.Int32
	var all sync.WaitGroup
	for range others + 1 {
		all.Add(1)
		go func() {
			defer all.Done()
			result, err := locks.Once(ctx, page, func(context.Context) ([]byte, error) {
				queued(t, pageLock, others)
				return fmt.Appendf(nil, "version %d", made.Add(1)), nil
			}, WithWait(patience), WithKeep(time.Hour))
			if err != nil || string(result) != "version 1" {
				t.Errorf("one got %q, %v", result, err)
			}
		}()
	}
	all.Wait()
	expect(t, "how often it was made", made.Load(), 1)
	isStored(t, "version 1")
	left := admin.PTTL(ctx, page).Val()
	expect(t, "it lives for an hour", left > 59*time.Minute && left <= time.Hour, true)
}

func TestOnceAHitAsksForNoLock(t *testing.T) {
	locks := newLocks(t)
	for ttl, early := range map[time.Duration]time.Duration{0: 20 * time.Second, time.Minute: 10 * time.Second, 5 * time.Second: 0} {
		must(t, admin.Set(ctx, page, "there", ttl).Err())
		must(t, admin.ConfigResetStat(ctx).Err())
		got(t, "there")(locks.Once(ctx, page, unused, WithEarly(early)))
		expect(t, "LOCK.ONCE", calls(t, admin, "lock.once"), 0)
		expect(t, "GET and PTTL", calls(t, admin, "get")*10+calls(t, admin, "pttl"), 11)
	}
	must(t, admin.Set(ctx, page, "", 0).Err())
	got(t, "")(locks.Once(ctx, page, unused))
	must(t, admin.Del(ctx, page).Err())
	must(t, admin.LPush(ctx, page, "x").Err())
	_, err := locks.Once(ctx, page, unused)
	says(t, err, nil, "WRONGTYPE")
	_, err = locks.Once(ctx, page, unused, WithKeep(0))
	says(t, err, nil, "WithKeep")
	_, err = locks.Once(ctx, "other", unused, WithTTL(time.Millisecond))
	says(t, err, nil, "WithTTL")
}

// writes counts the packets that a connection sends.
type writes struct {
	net.Conn
	count *atomic.Int32
}

func (w writes) Write(b []byte) (int, error) {
	w.count.Add(1)
	return w.Conn.Write(b)
}

func TestOnceTakesOneRoundTripOfGoRedis(t *testing.T) {
	must(t, admin.FlushAll(ctx).Err())
	var dialled, sent atomic.Int32
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return writes{conn, &sent}, err
	}})
	defer client.Close()
	locks := New(client)
	defer locks.Close()
	got(t, "new")(locks.Once(ctx, page, value("new")))
	sent.Store(0)
	got(t, "new")(locks.Once(ctx, page, unused))
	expect(t, "packets of a hit", sent.Load(), 1)
	must(t, admin.Del(ctx, page).Err())
	got(t, "newer")(locks.Once(ctx, page, value("newer"), WithWait(0)))
	expect(t, "and of a miss", sent.Load(), 1+3)
	expect(t, "connections, also for a pipeline", dialled.Load(), 1)
}

func TestOnceAMakerThatFailsLeavesItToTheNext(t *testing.T) {
	locks := newLocks(t)
	trouble := errors.New("no database")
	first := inBackground(func() error {
		_, err := locks.Once(ctx, page, func(context.Context) ([]byte, error) {
			queued(t, pageLock, 1)
			return []byte("half"), trouble
		})
		return err
	})
	eventually(t, "a maker", func() bool { return admin.Exists(ctx, pageLock).Val() == 1 })
	got(t, "whole")(locks.Once(ctx, page, value("whole"), WithWait(patience)))
	says(t, result(t, first), trouble)
	isStored(t, "whole")
	// One that panics, too.
	must(t, admin.Del(ctx, page).Err())
	func() {
		defer func() { expect(t, "a panic", recover(), any("it shall not run")) }()
		_, _ = locks.Once(ctx, page, unused)
	}()
	isStored(t, "")
	got(t, "")(locks.Once(ctx, page, func(context.Context) ([]byte, error) { return nil, nil }))
	expect(t, "an empty result is one", admin.Exists(ctx, page).Val(), 1)
}

func TestOnceAMakerThatHasLostTheLockStoresNothing(t *testing.T) {
	locks := newLocks(t)
	short := WithTTL(300 * time.Millisecond)
	var cause error
	got(t, "old")(locks.Once(ctx, page, func(within context.Context) ([]byte, error) {
		must(t, admin.Del(ctx, pageLock).Err())
		got(t, "new")(locks.Once(ctx, page, value("new")))
		eventually(t, "the end of its context", func() bool { return within.Err() != nil })
		cause = context.Cause(within)
		return []byte("old"), nil
	}, short))
	says(t, cause, ErrNotHeld)
	isStored(t, "new")
	// It learns of that at the end at the latest.
	must(t, admin.Del(ctx, page).Err())
	got(t, "late")(locks.Once(ctx, page, func(context.Context) ([]byte, error) {
		must(t, admin.Del(ctx, pageLock).Err())
		return []byte("late"), nil
	}))
	isStored(t, "")
	_, err := locks.Once(ctx, page, func(within context.Context) ([]byte, error) {
		must(t, admin.Del(ctx, pageLock).Err())
		eventually(t, "the end of its context", func() bool { return within.Err() != nil })
		return nil, within.Err()
	}, short)
	says(t, err, ErrNotHeld)
	says(t, err, context.Canceled)
}

func TestOnceTheLockIsRenewedWhileTheResultIsMade(t *testing.T) {
	locks := newLocks(t)
	must(t, admin.ConfigResetStat(ctx).Err())
	got(t, "slow")(locks.Once(ctx, page, func(within context.Context) ([]byte, error) {
		eventually(t, "renewals for longer than the ttl", func() bool { return calls(t, admin, "lock.renew") >= 5 })
		return []byte("slow"), within.Err()
	}, WithTTL(time.Second)))
	isStored(t, "slow")
}

func TestOnceOneMakesAnEarlyResultAndTheOthersGetTheOldOne(t *testing.T) {
	locks := newLocks(t)
	ends := func() { must(t, admin.Set(ctx, page, "old", 20*time.Second).Err()) }
	ends()
	early := WithEarly(29 * time.Second)
	begun, others := make(chan bool), make(chan bool)
	refresh := inBackground(func() error {
		result, err := locks.Once(ctx, page, func(context.Context) ([]byte, error) {
			close(begun)
			<-others
			return []byte("new"), nil
		}, early)
		if err == nil && string(result) != "new" {
			err = fmt.Errorf("it got %q", result)
		}
		return err
	})
	<-begun
	for range 10 {
		got(t, "old")(locks.Once(ctx, page, unused, early))
	}
	expect(t, "waiters", waiting(admin, pageLock), 0)
	close(others)
	must(t, result(t, refresh))
	isStored(t, "new")
	got(t, "new")(locks.Once(ctx, page, unused, early))
	// If it fails, the old one will do.
	ends()
	ran := false
	got(t, "old")(locks.Once(ctx, page, func(context.Context) ([]byte, error) { ran = true; return nil, errors.New("no database") }, early))
	expect(t, "it was tried", ran, true)
	isStored(t, "old")
	// Early is at most half of Keep, or each call would make it.
	got(t, "old")(locks.Once(ctx, page, unused, WithKeep(30*time.Second), early))
	// By XFetch.
	got(t, "old")(locks.Once(ctx, page, unused, early, WithXFetch(time.Microsecond, 1)))
	got(t, "drawn")(locks.Once(ctx, page, value("drawn"), WithXFetch(time.Hour, 1e9)))
	isStored(t, "drawn")
}

func TestOnceWaitsNoLongerThanItMay(t *testing.T) {
	locks := newLocks(t)
	must(t, admin.Do(ctx, "LOCK.ACQUIRE", pageLock, "somebody", 600_000).Err())
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		_, err := locks.Once(ctx, page, unused, WithWait(wait))
		refused(t, err)
		queued(t, pageLock, 0)
	}
	within, cancel := context.WithCancel(ctx)
	waits := inBackground(func() error { _, err := locks.Once(within, page, unused, WithWait(patience)); return err })
	queued(t, pageLock, 1)
	cancel()
	says(t, result(t, waits), ErrFailed)
	queued(t, pageLock, 0)
	// A result that somebody writes under the lock reaches one that waits, whoever holds it.
	waits = inBackground(func() error {
		result, err := locks.Once(ctx, page, unused, WithWait(patience))
		if err == nil && string(result) != "theirs" {
			err = fmt.Errorf("it got %q", result)
		}
		return err
	})
	queued(t, pageLock, 1)
	must(t, admin.Do(ctx, "LOCK.EXEC", pageLock, "somebody", "SET", page, "theirs", "PX", 60_000).Err())
	must(t, result(t, waits))
}

func TestOnceALostReplyIsAskedForAgain(t *testing.T) {
	locks, proxy := behindProxy(t)
	ran := 0
	proxy.loses("LOCK.ONCE")
	got(t, "1")(locks.Once(ctx, page, func(context.Context) ([]byte, error) {
		ran++
		proxy.loses("LOCK.EXEC")
		return fmt.Append(nil, ran), nil
	}, WithWait(patience)))
	expect(t, "both are lost", proxy.hasLost(), true)
	isStored(t, "1")
}

func TestOnceTheLockIsInTheSlotOfTheResult(t *testing.T) {
	node, err := testserver.Start("--cluster-enabled", "yes")
	node, direct := started(t, node, err)
	for slot := 0; slot < 16384; slot += 4096 {
		must(t, direct.ClusterAddSlotsRange(ctx, slot, slot+4095).Err())
	}
	eventually(t, "a cluster that is up", func() bool { return direct.Exists(ctx, "a").Err() == nil })
	locks := connected(t, dialing{addrs: []string{node.Addr}, cluster: true})
	for name, lock := range map[string]string{
		"page:7": "{page:7}:once", "{page:7}:html": "{page:7}:html:once", "a{b}c{d}": "a{b}c{d}:once", "a{b": "{a{b}:once",
	} {
		got(t, lock)(locks.Once(ctx, name, func(context.Context) ([]byte, error) {
			expect(t, lock, direct.Exists(ctx, lock).Val(), 1)
			return []byte(lock), nil
		}))
		expect(t, name, direct.Get(ctx, name).Val(), lock)
	}
	// Not in a cluster, where a tag that is empty is none.
	plain := newLocks(t)
	got(t, "x")(plain.Once(ctx, "{}page", func(context.Context) ([]byte, error) {
		expect(t, "its lock", admin.Exists(ctx, "{{}page}:once").Val(), 1)
		return []byte("x"), nil
	}))
}

func TestOnceWithoutTheModuleIsAnErrorThatSaysSo(t *testing.T) {
	addr, plain := withoutTheModule(t)
	_, err := locksTo(t, addr).Once(ctx, page, unused)
	says(t, err, ErrModuleMissing, "loadmodule /path/libredis_lock.so", "LOCK.ONCE")
	locks := locksTo(t, addr, WithFallback())
	for range 2 { // When it is not known yet, and when it is.
		_, err = locks.Once(ctx, page, unused)
		says(t, err, ErrModuleMissing, "a result that is made once is not available in the fallback")
	}
	must(t, locks.NewMutex("a").Lock())
	expect(t, "keys", plain.DBSize(ctx).Val(), 1)
}

func TestOnceNeedsItsRights(t *testing.T) {
	rights := []any{"+lock.once", "+lock.exec", "+get", "+pttl"}
	const mine, itsLock = "jobs:page", "{jobs:page}:once"
	allow := func() { must(t, admin.Do(ctx, "ACL", "SETUSER", "worker", "~{jobs:*").Err()) }
	locks := worker(t, append(rights, "+set")...)
	allow()
	got(t, "new")(locks.Once(ctx, mine, value("new")))
	locks = worker(t, rights...)
	allow()
	result, err := locks.Once(ctx, mine, value("new"))
	says(t, err, nil, "NOPERM")
	expect(t, "the result comes with it", string(result), "new")
	expect(t, "keys", admin.Exists(ctx, mine, itsLock).Val(), 0)
}
