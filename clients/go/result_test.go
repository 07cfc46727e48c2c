package redislock

import (
	"context"
	"fmt"
	"testing"
	"time"
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

func TestOnceRefusesWhatCannotBeAndAPanicLeavesNothing(t *testing.T) {
	locks, _ := behindProxy(t)
	func() {
		defer func() { expect(t, "a panic", recover(), any("it shall not run")) }()
		_, _ = locks.Once(ctx, page, unused)
	}()
	isStored(t, "")
	must(t, admin.LPush(ctx, page, "x").Err())
	_, err := locks.Once(ctx, page, unused)
	says(t, err, nil, "WRONGTYPE")
	_, err = locks.Once(ctx, page, unused, WithKeep(0))
	says(t, err, nil, "WithKeep")
	_, err = locks.Once(ctx, "other", unused, WithTTL(time.Millisecond))
	says(t, err, nil, "WithTTL")
}

func TestOnceTakesOneRoundTripOfGoRedis(t *testing.T) {
	ofGoRedis(t) // The others send signs of life, too.
	locks, proxy := behindProxy(t)
	got(t, "new")(locks.Once(ctx, page, value("new")))
	before := proxy.requests.Load()
	got(t, "new")(locks.Once(ctx, page, unused))
	expect(t, "packets of a hit", proxy.requests.Load()-before, 1)
	must(t, admin.Del(ctx, page).Err())
	got(t, "newer")(locks.Once(ctx, page, value("newer"), WithWait(0)))
	expect(t, "and of a miss", proxy.requests.Load()-before, 1+3)
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	expect(t, "connections, also for a pipeline", len(proxy.links), 1)
}

func TestOnceXFetchDrawsHowEarlyAResultIs(t *testing.T) {
	locks, _ := behindProxy(t)
	must(t, admin.Set(ctx, page, "old", 20*time.Second).Err())
	got(t, "old")(locks.Once(ctx, page, unused, WithEarly(29*time.Second), WithXFetch(time.Microsecond, 1)))
	got(t, "drawn")(locks.Once(ctx, page, value("drawn"), WithXFetch(time.Microsecond, 1e15)))
	isStored(t, "drawn")
}

func TestOnceAMakerThatHasLostTheLockIsTold(t *testing.T) {
	locks, _ := behindProxy(t)
	_, err := locks.Once(ctx, page, func(within context.Context) ([]byte, error) {
		must(t, admin.Del(ctx, pageLock).Err())
		<-within.Done()
		says(t, context.Cause(within), ErrNotHeld)
		return nil, within.Err()
	}, WithTTL(300*time.Millisecond))
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
