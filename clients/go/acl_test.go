package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
)

// workersRights are those of the role "worker": redis.conf.example.
var workersRights = []any{"+lock.acquire", "+rwlock.wlock", "+rwlock.rlock", "+lock.renew", "+lock.release", "+ping"}

// userOf makes a user with these rights, and returns locks that use it.
func userOf(t *testing.T, target *testserver.Server, d dialing, rights []any, options ...ClientOption) *RedisLock {
	t.Helper()
	rule := []any{"ACL", "SETUSER", "worker", "reset", "on", ">s3cret", "resetchannels", "~jobs:*", "-@all"}
	client := clientOf(t, target)
	must(t, client.Do(ctx, append(rule, rights...)...).Err())
	d.user, d.secret = "worker", "s3cret"
	return connected(t, d, options...)
}

// worker returns locks whose user has a worker's rights, and more.
func worker(t *testing.T, more ...any) *RedisLock {
	t.Helper()
	must(t, admin.FlushAll(ctx).Err())
	t.Cleanup(func() { admin.Do(context.Background(), "ACL", "DELUSER", "worker") })
	return userOf(t, server, dialing{addrs: []string{server.Addr}}, slices.Concat(workersRights, more))
}

// worksAsWorker does all that needs no more than a worker's rights.
func worksAsWorker(t *testing.T, locks *RedisLock) {
	t.Helper()
	mutex := locks.NewMutex("jobs:1", WithExpiry(time.Minute))
	must(t, mutex.Lock())
	released(t)(mutex.Extend())
	refused(t, locks.NewMutex("jobs:1").TryLock())
	refused(t, locks.NewMutex("jobs:1", WithTries(2), WithRetryDelay(50*time.Millisecond)).Lock())
	within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := locks.NewMutex("jobs:1", WithTries(forever)).LockContext(within)
	expect(t, fmt.Sprint("a context that ends: ", err), errors.Is(err, ErrFailed), true)
	next := inBackground(locks.NewMutex("jobs:1", WithTries(forever)).Lock)
	released(t)(mutex.Unlock())
	must(t, result(t, next))

	both := locks.NewRWMutex("jobs:2")
	must(t, both.RLock())
	released(t)(both.RUnlock())
	must(t, both.Lock())
	released(t)(both.Unlock())
	permit, err := locks.NewSemaphore("jobs:3", 2).Acquire(ctx)
	must(t, err)
	released(t)(permit.Unlock())
	lingers := locks.NewMutex("jobs:4", WithLinger(time.Second))
	must(t, lingers.Lock())
	released(t)(lingers.Unlock())
	ran, err := locks.RunOnce(ctx, "jobs:5", time.Minute, time.Millisecond, func(context.Context, *Mutex) error { return nil })
	expect(t, fmt.Sprint("a job: ", err), ran && err == nil, true)
}

func TestACLOfAWorkerIsEnough(t *testing.T) {
	locks := worker(t)
	worksAsWorker(t, locks)
	err := locks.NewMutex("other").Lock()
	says(t, err, nil, "NOPERM")
	mutex := locks.NewMutex("jobs:7")
	must(t, mutex.Lock())
	_, err = mutex.Check(ctx)
	says(t, err, nil, "NOPERM")
	says(t, locks.NewMultiMutex([]string{"jobs:8", "jobs:9"}, nil).Lock(), nil, "NOPERM")
	released(t)(mutex.Unlock())
}

func TestACLOfAWorkerWithEachFurtherRight(t *testing.T) {
	checked := worker(t, "+lock.check").NewMutex("jobs:1")
	must(t, checked.Lock())
	released(t)(checked.Check(ctx))
	several := worker(t, "+lock.macquire").NewMultiMutex([]string{"jobs:1", "jobs:2"}, nil)
	must(t, several.Lock())
	released(t)(several.Extend())
	released(t)(several.Unlock())
	mutex := worker(t, "+lock.exec", "+set").NewMutex("jobs:1")
	must(t, mutex.Lock())
	must(t, mutex.Exec(ctx, "SET", "jobs:stock", 3).Err())
}

func TestACLOfTheFallback(t *testing.T) {
	plain, _ := started(t, "--without-module")
	rights := []any{"+set", "+eval", "+get", "+type", "+pexpire", "+del", "+ping"}
	locks := userOf(t, plain, dialing{addrs: []string{plain.Addr}}, rights, WithFallback())
	mutex := locks.NewMutex("jobs:1")
	must(t, mutex.Lock())
	released(t)(mutex.Extend())
	released(t)(mutex.Check(ctx))
	released(t)(mutex.Unlock())
}

func TestACLOfAWorkerInACluster(t *testing.T) {
	node, direct := started(t, "--cluster-enabled", "yes")
	for slot := 0; slot < 16384; slot += 4096 {
		must(t, direct.ClusterAddSlotsRange(ctx, slot, slot+4095).Err())
	}
	eventually(t, "a cluster that is up", func() bool { return direct.Exists(ctx, "a").Err() == nil })
	worksAsWorker(t, userOf(t, node, dialing{addrs: []string{node.Addr}, cluster: true},
		slices.Concat(workersRights, []any{"+cluster|slots", "+cluster|shards"})))
}
