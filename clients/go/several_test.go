package redislock

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// refused checks that a lock was not had because others have it.
func refused(t *testing.T, err error) {
	t.Helper()
	expect(t, fmt.Sprint("ErrTaken: ", err), errors.Is(err, &ErrTaken{}), true)
}

func TestThereAreNeverMoreHoldersThanPermits(t *testing.T) {
	clients := []*RedisLock{newLocks(t), locksTo(t, server.Addr), locksTo(t, server.Addr)}
	var inside, most atomic.Int32
	var all []<-chan error
	for i := 0; i < 9; i++ {
		semaphore := clients[i%3].NewSemaphore("a", 3, WithTries(forever))
		all = append(all, inBackground(func() error {
			for turn := 0; turn < 4; turn++ {
				permit, err := semaphore.Acquire(ctx)
				if err != nil {
					return err
				}
				now := inside.Add(1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				time.Sleep(50 * time.Millisecond)
				inside.Add(-1)
				if _, err := permit.Unlock(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, done := range all {
		must(t, result(t, done))
	}
	expect(t, "at most", most.Load(), 3)
	expect(t, "holds left", admin.Exists(ctx, "a").Val(), 0)
}

// ofBoth is how many hold or wait for "a" and "b".
func ofBoth() (holders, waiters int64) {
	return admin.Exists(ctx, "a", "b").Val(), int64(waiting("a") + waiting("b"))
}

func nothingLeft(t *testing.T) {
	t.Helper()
	holders, waiters := ofBoth()
	expect(t, "holds left", holders, 0)
	expect(t, "places left", waiters, 0)
}

func TestAMultiMutexIsOneHold(t *testing.T) {
	locks := newLocks(t)
	both := locks.NewMultiMutex([]string{"b", "a"}, nil, WithTries(forever), WithExpiry(time.Minute))
	must(t, both.Lock())
	expect(t, "names", fmt.Sprintln(both.Name(), both.Names()), "b [b a]\n")
	expect(t, "a name twice", errors.As(locks.NewMultiMutex([]string{"a"}, []string{"a"}).Lock(), new(*RedisError)), true)
	refused(t, locks.NewMutex("a").TryLock())
	refused(t, locks.NewMutex("b").TryLock())
	must(t, admin.PExpire(ctx, "a", time.Second).Err())
	must(t, admin.PExpire(ctx, "b", time.Second).Err())
	released(t)(both.Extend())
	expect(t, "both extended", admin.PTTL(ctx, "a").Val() > 50*time.Second && admin.PTTL(ctx, "b").Val() > 50*time.Second, true)
	released(t)(both.Valid())
	released(t)(both.Check(ctx))
	released(t)(both.Unlock())
	nothingLeft(t)
}

func TestAMultiMutexBeginsAnewWhenAPartOfItHasEnded(t *testing.T) {
	proxy := newProxy(t)
	locks := newLocksAt(t, proxy.addr)
	must(t, locks.NewMutex("c").TryLock())
	both := locks.NewMultiMutex([]string{"a", "b"}, nil, WithTries(2), WithRetryDelay(5*time.Second), WithExpiry(time.Hour))
	holder := newLocks(t).NewMutex("b", WithExpiry(time.Minute))
	must(t, holder.Lock())
	done := inBackground(both.Lock)
	eventually(t, "a place in both queues", func() bool { _, n := ofBoth(); return n == 2 })
	// Nobody hears of the grant before one of the keys is gone.
	proxy.cut(300*time.Millisecond, false)
	eventually(t, "places of nobody", func() bool { return absent("a") == 1 && absent("b") == 1 })
	token := fmt.Sprint(admin.Do(ctx, "LOCK.INFO", "a").Val())
	must(t, admin.Do(ctx, "LOCK.RELEASE", "b", holder.Value()).Err())
	token = token[strings.Index(token, "token"):]
	token = strings.FieldsFunc(token, func(r rune) bool { return strings.ContainsRune(": []", r) })[1]
	must(t, admin.Do(ctx, "LOCK.MACQUIRE", 2, "a", "b", token, 60_000).Err())
	must(t, admin.Del(ctx, "a").Err())
	must(t, result(t, done))
	released(t)(both.Check(ctx))
	released(t)(both.Unlock())
	nothingLeft(t)
}

func TestAMutexAndAMultiMutexInACluster(t *testing.T) {
	node, err := testserver.Start("--cluster-enabled", "yes")
	must(t, err)
	defer node.Stop()
	direct := node.Client()
	defer direct.Close()
	for slot := 0; slot < 16384; slot += 4096 {
		must(t, direct.ClusterAddSlotsRange(ctx, slot, slot+4095).Err())
	}
	eventually(t, "a cluster that is up", func() bool { return direct.Do(ctx, "LOCK.INFO", "a").Err() == redis.Nil })
	locks := connected(t, dialing{addrs: []string{node.Addr}, cluster: true})
	both := locks.NewMultiMutex([]string{"{x}a", "{x}b"}, nil, WithTries(forever))
	must(t, both.TryLock())
	mutex := locks.NewMutex("another slot", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	waiter := locks.NewMutex("another slot", WithTries(forever))
	waited := inBackground(waiter.Lock)
	eventually(t, "a place in the queue", func() bool { return waitingAt(direct, "another slot") == 1 })
	released(t)(mutex.Unlock())
	must(t, result(t, waited))
	acquire := both.request("")
	expect(t, "what the client finds the node by", fmt.Sprint(acquire.Args[acquire.Key]), "{x}a")
	must(t, both.Exec(ctx, "SET", "{x}c", 1).Err())
	other := locks.NewMultiMutex([]string{"{x}b", "{x}a"}, nil, WithTries(forever))
	done := inBackground(other.Lock)
	eventually(t, "a place in the queue", func() bool { return waitingAt(direct, "{x}a") == 1 })
	released(t)(both.Unlock())
	must(t, result(t, done))
	released(t)(other.Unlock())
	err = locks.NewMultiMutex([]string{"a", "b"}, nil).Lock()
	expect(t, fmt.Sprint("several slots: ", err), says(err, "CROSSSLOT"), true)
}

func TestAMultiMutexLeavesWhatItsTokenHeldBefore(t *testing.T) {
	locks := newLocks(t)
	one := locks.NewMutex("a", oneToken, WithExpiry(time.Minute))
	must(t, one.Lock())
	for _, lock := range []func(*MultiMutex) error{
		func(both *MultiMutex) error { return both.TryLock() },
		func(both *MultiMutex) error { return both.Lock() },
	} {
		err := lock(locks.NewMultiMutex([]string{"a", "b"}, nil, oneToken))
		expect(t, fmt.Sprint("the server's word: ", err), says(err, "PARTIAL"), true)
		released(t)(one.Check(ctx))
	}
	released(t)(one.Unlock())
}

func TestNoNamesAndNoPermitsAreRefused(t *testing.T) {
	locks := newLocks(t)
	refuses := func(err error, why string) {
		t.Helper()
		expect(t, fmt.Sprint("refused: ", err), err != nil && strings.Contains(err.Error(), why), true)
	}
	none := locks.NewMultiMutex(nil, []string{}, WithSetNXOnExtend(), WithValue("mine"))
	expect(t, "its name", none.Name(), "")
	refuses(none.Lock(), "at least one name")
	refuses(none.TryLock(), "at least one name")
	failed(t, ErrExtendFailed)(none.Extend())
	failed(t, ErrLockAlreadyExpired)(none.Unlock())
	for _, permits := range []int{0, -1} {
		semaphore := locks.NewSemaphore("a", permits)
		_, err := semaphore.TryAcquire(ctx)
		refuses(err, "at least one permit")
		_, err = semaphore.Acquire(ctx)
		refuses(err, "at least one permit")
	}
	expect(t, "holds left", admin.DBSize(ctx).Val(), 0)
}
