package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// hour is a grace that no test outlives, so that a place that is gone was given up.
const hour = time.Hour

// crowd starts eight raw clients, which block without end and take turns with the lock until the
// test is over. It returns how many holds they have begun.
func crowd(t *testing.T, addr string, hold time.Duration) *atomic.Int32 {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var holds atomic.Int32
	var clients []*redis.Client
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, ReadTimeout: -1, MaxRetries: -1})
		clients = append(clients, client)
		token := fmt.Sprintf("raw %d", i)
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				if client.Do(ctx, "LOCK.ACQUIRE", "a", token, 600_000, "BLOCK", 0).Err() != nil {
					return
				}
				holds.Add(1)
				sleep(ctx, hold)
				if client.Do(ctx, "LOCK.RELEASE", "a", token).Err() != nil {
					return
				}
			}
		}()
	}
	t.Cleanup(func() {
		stop()
		for _, client := range clients {
			_ = client.Close()
		}
		all.Wait()
	})
	return &holds
}

// amongEight measures after how many holds of others a mutex gets the lock. Eight of these holds
// are longer than a slice.
func amongEight(t *testing.T, slice, hold time.Duration, options ...Option) {
	if 8*hold <= slice {
		t.Fatal("eight holds do not outlast a slice")
	}
	own, err := testserver.Start()
	must(t, err)
	t.Cleanup(own.Stop)
	client := own.Client()
	t.Cleanup(func() { _ = client.Close() })
	locks := locksTo(t, own.Addr)
	locks.waiters.slice = slice
	holds := crowd(t, own.Addr, hold)
	eventually(t, "seven waiters", func() bool { return waitingAt(client, "a") == 7 })

	before, start := holds.Load(), time.Now()
	// Only the patience is not the default, which is 4.6s.
	mutex := locks.NewMutex("a", append(options, WithTries(forever))...)
	ctx, cancel := context.WithTimeout(ctx, 12*hold+10*time.Second) // The count below is what matters.
	defer cancel()
	err = mutex.LockContext(ctx)
	after := holds.Load() - before
	t.Logf("granted after %d holds of %v, %v: %v", after, hold, time.Since(start).Round(time.Millisecond), err)
	must(t, err)
	if after > 10 {
		t.Fatalf("%d holds of others came first", after)
	}
	released(t)(mutex.Unlock())
}

func TestAWaiterThatAsksInSlicesIsServedInItsTurn(t *testing.T) {
	amongEight(t, 500*time.Millisecond, 100*time.Millisecond)
}

func TestAMutexAtItsDefaultsIsServedInItsTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("eight holds that outlast the default slice take more than 30s")
	}
	t.Parallel()
	const defaults = longestSlice
	amongEight(t, defaults, defaults/8+250*time.Millisecond)
}

func TestWaitersThatAskInSlicesAreServedInOrder(t *testing.T) {
	locks := newLocks(t)
	locks.waiters.slice = 30 * time.Millisecond
	holder := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, holder.Lock())
	order := orderOf(t, locks, 6, 50*time.Millisecond) // longer than a slice
	must(t, admin.ConfigResetStat(ctx).Err())
	eventually(t, "slices of all", func() bool { return calls(t, "lock.acquire") >= 18 })
	released(t)(holder.Unlock())
	expect(t, "order", fmt.Sprint(order()), "[0 1 2 3 4 5]")
}

func TestADeadWaiterCostsItsGraceAtMost(t *testing.T) {
	const grace = 600 * time.Millisecond
	proxy := newProxy(t)
	dying := newLocksAt(t, proxy.addr)
	locks := newLocks(t)
	holder := locks.NewMutex("a", WithExpiry(time.Minute))
	must(t, holder.Lock())
	ctx, cancel := context.WithCancel(ctx)
	dead := inBackground(func() error {
		return dying.NewMutex("a", WithTries(forever), WithGrace(grace)).LockContext(ctx)
	})
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	mutex := locks.NewMutex("a", WithTries(forever))
	done := inBackground(mutex.Lock)
	eventually(t, "two in the queue", func() bool { return waiting("a") == 2 })

	proxy.cut(0, true)
	eventually(t, "a place of nobody", func() bool { return absent("a") == 1 })
	start := time.Now()
	released(t)(holder.Unlock())
	must(t, result(t, done))
	took := time.Since(start)
	t.Logf("a dead waiter cost %v of its grace of %v", took.Round(time.Millisecond), grace)
	if took < grace/2 || took > grace+time.Second {
		t.Fatalf("it cost %v", took)
	}
	released(t)(mutex.Unlock())
	cancel()
	expect(t, "the dead one", errors.Is(result(t, dead), context.Canceled), true)
}

func TestAWaiterThatGivesUpLeavesNoPlaceBehind(t *testing.T) {
	wants := map[string]error{"cancelled": context.Canceled, "at the deadline of its context": context.DeadlineExceeded}
	for name, giveUp := range map[string]func(t *testing.T, mutex *Mutex) error{
		"at the end of its tries": func(t *testing.T, mutex *Mutex) error {
			WithTries(3).Apply(mutex)
			WithRetryDelay(150 * time.Millisecond).Apply(mutex)
			return mutex.Lock()
		},
		"cancelled": func(t *testing.T, mutex *Mutex) error {
			ctx, cancel := context.WithCancel(ctx)
			done := inBackground(func() error { return mutex.LockContext(ctx) })
			eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
			cancel()
			return result(t, done)
		},
		"at the deadline of its context": func(t *testing.T, mutex *Mutex) error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			return mutex.LockContext(ctx)
		},
		"at an error that waiting does not cure": func(t *testing.T, mutex *Mutex) error {
			done := inBackground(mutex.Lock)
			eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
			must(t, admin.ConfigSet(context.Background(), "maxmemory", "1").Err()) // The next slice gets OOM.
			defer admin.ConfigSet(context.Background(), "maxmemory", "0")
			return result(t, done)
		},
		"without a connection in between": func(t *testing.T, mutex *Mutex) error {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			done := inBackground(func() error { return mutex.LockContext(ctx) })
			eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
			must(t, admin.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err())
			return result(t, done)
		},
	} {
		for _, slice := range []time.Duration{30 * time.Millisecond, 5 * time.Second} {
			if slice > time.Second && strings.HasPrefix(name, "at an error") {
				continue // It would come only with the next slice.
			}
			t.Run(fmt.Sprint(name, ", slices of ", slice), func(t *testing.T) {
				locks := newLocks(t)
				locks.waiters.slice = slice
				holder := locks.NewMutex("a", WithExpiry(time.Minute))
				must(t, holder.Lock())
				err := giveUp(t, locks.NewMutex("a", WithTries(forever), WithGrace(hour)))
				if err == nil || wants[name] != nil && !(errors.Is(err, ErrFailed) && errors.Is(err, wants[name])) {
					t.Fatalf("it says %v", err)
				}
				expect(t, "waiters", waiting("a"), 0)
				released(t)(holder.Unlock())
				expect(t, "holds left", admin.Exists(context.Background(), "a").Val(), 0)
				must(t, locks.NewMutex("a").TryLock())
			})
		}
	}
}

func TestAWaiterThatGivesUpBesideALostRequestLeavesNoPlaceBehind(t *testing.T) {
	proxy := newProxy(t)
	far := newLocksAt(t, proxy.addr)
	must(t, newLocks(t).NewMutex("a", WithExpiry(time.Minute)).Lock())
	ctx, cancel := context.WithCancel(ctx)
	done := inBackground(func() error {
		return far.NewMutex("a", WithTries(forever), WithGrace(hour)).LockContext(ctx)
	})
	eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
	proxy.loses("LOCK.RELEASE")
	cancel()
	expect(t, "cancelled", errors.Is(result(t, done), context.Canceled), true)
	expect(t, "waiters", waiting("a"), 0)
}

func TestAPlaceOutlivesItsConnection(t *testing.T) {
	for _, fault := range []struct {
		name  string
		slice time.Duration
		do    func(*proxy)
	}{
		{"cut, and the next connection is slow", 30 * time.Second, func(p *proxy) { p.cut(400*time.Millisecond, false) }},
		{"half open", 300 * time.Millisecond, func(p *proxy) { p.hush.Store(true) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			proxy := newProxy(t)
			far := newLocksAt(t, proxy.addr)
			locks := newLocks(t)
			far.waiters.slice = fault.slice
			holder := locks.NewMutex("a", WithExpiry(time.Minute))
			must(t, holder.Lock())
			first := far.NewMutex("a", WithTries(forever), WithExpiry(time.Minute))
			firstDone := inBackground(first.Lock)
			eventually(t, "a place in the queue", func() bool { return waiting("a") == 1 })
			second := locks.NewMutex("a", WithTries(forever), WithExpiry(time.Minute))
			secondDone := inBackground(second.Lock)
			eventually(t, "two in the queue", func() bool { return waiting("a") == 2 })

			fault.do(proxy)
			eventually(t, "a place of nobody", func() bool { return absent("a") == 1 })
			released(t)(holder.Unlock()) // Its turn comes while nobody listens.
			proxy.hush.Store(false)
			must(t, result(t, firstDone))
			expect(t, "the second one waits", waiting("a"), 1)
			released(t)(first.Unlock())
			must(t, result(t, secondDone))
			if first.Fence() >= second.Fence() {
				t.Fatal("the second one passed the first one")
			}
			released(t)(second.Unlock())
		})
	}
}

func TestOnlyAWaiterSaysKEEP(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	holder := locks.NewMutex("a", WithExpiry(time.Minute), WithSetNXOnExtend())
	must(t, holder.TryLock())
	must(t, admin.Del(ctx, "a").Err())
	released(t)(holder.Extend())
	brief := []Option{WithTries(2), WithRetryDelay(20 * time.Millisecond)}
	expect(t, "TryLock", errors.Is(locks.NewMutex("a").TryLock(), &ErrTaken{}), true)
	expect(t, "one try", errors.Is(locks.NewMutex("a", WithTries(1)).Lock(), &ErrTaken{}), true)
	expect(t, "no grace", errors.Is(locks.NewMutex("a", append(brief, WithGrace(0))...).Lock(), &ErrTaken{}), true)
	expect(t, "commands with KEEP", proxy.keeps.Load(), 0)
	expect(t, "with a grace", errors.Is(locks.NewMutex("a", brief...).Lock(), &ErrTaken{}), true)
	expect(t, "commands with KEEP", proxy.keeps.Load(), 1)
}

func TestAReaderThatDoesNotBecomeTheWriterGoesOnReading(t *testing.T) {
	locks := newLocks(t)
	must(t, locks.NewRWMutex("a").RLock())
	both := locks.NewRWMutex("a", WithGenValueFunc(func() (string, error) { return "mine", nil }),
		WithTries(2), WithRetryDelay(50*time.Millisecond))
	must(t, both.RLock())
	expect(t, "the upgrade", errors.Is(both.Lock(), &ErrTaken{}), true)
	expect(t, "waiters", waiting("a"), 0)
	released(t)(both.RUnlock())
}
