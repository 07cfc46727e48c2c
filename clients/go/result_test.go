package redislock

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

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

func TestOnceRefusesWhatCannotBe(t *testing.T) {
	locks := newLocks(t)
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

func TestOnceAMakerThatPanicsLeavesNothing(t *testing.T) {
	locks := newLocks(t)
	func() {
		defer func() { expect(t, "a panic", recover(), any("it shall not run")) }()
		_, _ = locks.Once(ctx, page, unused)
	}()
	isStored(t, "")
}

func TestOnceXFetchDrawsHowEarlyAResultIs(t *testing.T) {
	locks := newLocks(t)
	must(t, admin.Set(ctx, page, "old", 20*time.Second).Err())
	got(t, "old")(locks.Once(ctx, page, unused, WithEarly(29*time.Second), WithXFetch(time.Microsecond, 1)))
	got(t, "drawn")(locks.Once(ctx, page, value("drawn"), WithXFetch(time.Hour, 1e9)))
	isStored(t, "drawn")
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
	must(t, admin.Del(ctx, page).Err())
	_, err := locks.Once(ctx, page, func(within context.Context) ([]byte, error) {
		must(t, admin.Del(ctx, pageLock).Err())
		eventually(t, "the end of its context", func() bool { return within.Err() != nil })
		return nil, within.Err()
	}, short)
	says(t, err, ErrNotHeld)
	says(t, err, context.Canceled)
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
