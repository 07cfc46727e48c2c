package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func ofGoRedis(t *testing.T) {
	t.Helper()
	if name := os.Getenv("REDIS_LOCK_DRIVER"); name != "" && name != "go-redis" {
		t.Skip("of go-redis")
	}
}

// What prolongs or ends a hold does not depend on the user's pool: here its only connection is taken, and there is no second one.
func TestAnExhaustedPoolStopsNeitherUnlockNorRenewal(t *testing.T) {
	ofGoRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, PoolTimeout: time.Millisecond, MaxRetries: -1})
	defer client.Close()
	locks := New(client)
	defer locks.Close()
	taken := client.Conn()
	defer taken.Close()
	must(t, taken.Ping(ctx).Err())
	says(t, client.Ping(ctx).Err(), nil) // The pool is exhausted.
	for key, option := range map[string]Option{"pool:1": minute, "pool:2": WithLinger(20 * time.Second)} {
		mutex := locks.NewMutex(key, option)
		must(t, mutex.Lock())
		released(t)(mutex.Extend())
		waiter := inBackground(t, locks.NewMutex(key, WithTries(forever)).Lock)
		queued(t, key, 1)
		released(t)(mutex.Unlock())
		must(t, waiter())
	}
}

// silent is a cluster whose nodes answer nothing.
type silent struct{ *redis.ClusterClient }

func (silent) MasterForKey(context.Context, string) (*redis.Client, error) { select {} }

func TestAClusterThatIsSilentKeepsNobody(t *testing.T) {
	within, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	says(t, New(silent{&redis.ClusterClient{}}).NewMutex("a").LockContext(within), ErrFailed)
}

func TestALostReplyIsHadByAskingAgain(t *testing.T) {
	locks, proxy := behindProxy(t)
	for _, option := range []Option{minute, WithLinger(20 * time.Second)} {
		must(t, locks.NewMutex("b", option).TryLock()) // the reply that is lost shall not be the handshake's
		must(t, admin.ConfigResetStat(ctx).Err())
		proxy.loses("LOCK.ACQUIRE")
		mutex := locks.NewMutex("a", WithTries(forever), WithExpiry(time.Hour), option)
		must(t, mutex.Lock())
		expect(t, "acquires", proxy.hasLost() && calls(t, admin, "lock.acquire") == 2, true)
		proxy.loses("LOCK.RELEASE")
		released(t)(mutex.Unlock())
		expect(t, "releases", proxy.hasLost() && calls(t, admin, "lock.release") == 2, true)
		must(t, admin.FlushAll(ctx).Err())
	}
}

func TestAnUnlockGoesOnByItselfWhenTheServerWasAway(t *testing.T) {
	locks, proxy := behindProxy(t)
	mutex := locks.NewMutex("a", WithExpiry(time.Hour))
	must(t, mutex.Lock())
	proxy.cut()
	_, err := mutex.Unlock()
	says(t, err, nil)
	proxy.join()
	eventually(t, "the end of the hold", func() bool { return admin.Exists(ctx, "a").Val() == 0 })
}

func TestSilentConnectionsAreNotUsedAgain(t *testing.T) {
	ofGoRedis(t) // The others send all over one connection, and look after it.
	locks, proxy := behindProxy(t)
	var held []*Mutex
	for i := range 3 {
		mutex := locks.NewMutex(fmt.Sprint("warm", i), WithLinger(20*time.Second)) // has a connection of its own
		must(t, mutex.Lock())
		held = append(held, mutex)
	}
	for _, mutex := range held {
		released(t)(mutex.Unlock())
	}
	proxy.silence()
	err := locks.NewMutex("a", WithTries(2), WithRetryDelay(300*time.Millisecond), minute).Lock()
	expect(t, fmt.Sprint("an error of the connection: ", err), errors.As(err, new(*RedisError)), true)
	must(t, locks.NewMutex("c", WithTries(1)).Lock()) // The other idle ones are not tried.
}

func TestCloseEndsTheConnectionsOfHoldsThatLinger(t *testing.T) {
	ofGoRedis(t) // The others keep the idle ones in the client's pool.
	locks, _ := behindProxy(t)
	mutex := locks.NewMutex("m", WithExpiry(time.Hour), WithLinger(time.Second))
	must(t, mutex.Lock())
	must(t, locks.Close())
	eventually(t, "the server sees it end", func() bool { return admin.Exists(ctx, "m").Val() == 0 })
	says(t, mutex.TryLock(), nil)
}

func TestAWaiterThatGivesUpLeavesNoPlaceBehind(t *testing.T) {
	for name, giveUp := range map[string]func(cancel context.CancelFunc, proxy *proxy){
		"by a lost release":    func(cancel context.CancelFunc, p *proxy) { p.loses("LOCK.RELEASE"); cancel() },
		"after its connection": func(cancel context.CancelFunc, p *proxy) { p.cut(); p.join(); cancel() },
		// The next request asks for too long a grace.
		"at a final error": func(_ context.CancelFunc, p *proxy) { admin.ConfigSet(ctx, "lock.max-keep", "1000"); p.cut(); p.join() },
	} {
		t.Run(name, func(t *testing.T) {
			far, proxy := behindProxy(t)
			holder := locksTo(t, server.Addr).NewMutex("a", minute)
			must(t, holder.Lock())
			within, cancel := context.WithCancel(ctx)
			defer cancel()
			done := inBackground(t, func() error { return far.NewMutex("a", WithTries(forever), WithGrace(time.Hour)).LockContext(within) })
			defer admin.ConfigSet(ctx, "lock.max-keep", "3600000")
			queued(t, "a", 1)
			giveUp(cancel, proxy)
			says(t, done(), nil)
			queued(t, "a", 0)
			released(t)(holder.Unlock())
			expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
		})
	}
}
