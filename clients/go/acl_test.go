package redislock

import (
	"context"
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
	rule := []any{"ACL", "SETUSER", "worker", "reset", "on", ">s3cret", "resetchannels", "~jobs:*", "~{jobs:*", "-@all"}
	must(t, clientOf(t, target).Do(ctx, append(rule, rights...)...).Err())
	d.user, d.secret = "worker", "s3cret"
	return connected(t, d, options...)
}

// worksAsWorker does all that needs no more than a worker's rights.
func worksAsWorker(t *testing.T, locks *RedisLock) {
	t.Helper()
	mutex, both := locks.NewMutex("jobs:1", minute), locks.NewRWMutex("jobs:2", WithLinger(time.Second))
	must(t, mutex.Lock())
	released(t)(mutex.Extend())
	refused(t, locks.NewMutex("jobs:1", WithTries(2), WithRetryDelay(50*time.Millisecond)).Lock())
	within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	says(t, locks.NewMutex("jobs:1", WithTries(forever)).LockContext(within), ErrFailed)
	next := inBackground(t, locks.NewMutex("jobs:1", WithTries(forever)).Lock)
	released(t)(mutex.Unlock())
	must(t, next())

	must(t, both.RLock())
	released(t)(both.RUnlock())
	must(t, both.Lock())
	released(t)(both.Unlock())
	permit, err := locks.NewSemaphore("jobs:3", 2).Acquire(ctx)
	must(t, err)
	released(t)(permit.Unlock())
	released(t)(locks.RunOnce(ctx, "jobs:5", time.Minute, time.Millisecond, func(context.Context, *Mutex) error { return nil }))
}

func TestACLOfAWorkerAndOfFurtherRights(t *testing.T) {
	must(t, admin.FlushAll(ctx).Err())
	t.Cleanup(func() { admin.Do(context.Background(), "ACL", "DELUSER", "worker") })
	at := dialing{addrs: []string{server.Addr}}
	locks := userOf(t, server, at, workersRights)
	worksAsWorker(t, locks)
	held := locks.NewMutex("jobs:7", minute)
	must(t, held.Lock())
	_, checked := held.Check(ctx)
	_, got := locks.Once(ctx, "jobs:page", unused)
	for _, err := range []error{
		checked, got, held.Exec(ctx, "SET", "jobs:n", 3).Err(), locks.NewMultiMutex([]string{"jobs:8"}, nil).Lock(), locks.NewMutex("other").Lock(),
	} {
		says(t, err, nil, "NOPERM")
	}
	further := []any{"+lock.macquire", "+lock.check", "+lock.exec", "+lock.once", "+get", "+pttl", "+set"}
	locks = userOf(t, server, at, slices.Concat(workersRights, further))
	several := locks.NewMultiMutex([]string{"jobs:8", "jobs:9"}, nil)
	must(t, several.Lock())
	released(t)(several.Extend())
	released(t)(several.Check(ctx))
	must(t, several.Exec(ctx, "SET", "jobs:n", 3).Err())
	released(t)(several.Unlock())
	_, err := locks.Once(ctx, "jobs:page", value("new"))
	must(t, err)
	expect(t, "locks left", admin.Exists(ctx, "{jobs:page}:once").Val(), 0)
}

func TestACLOfAWorkerInACluster(t *testing.T) {
	node, direct := started(t, "--cluster-enabled", "yes")
	for slot := 0; slot < 16384; slot += 4096 {
		must(t, direct.ClusterAddSlotsRange(ctx, slot, slot+4095).Err())
	}
	eventually(t, "a cluster that is up", func() bool { return direct.Exists(ctx, "a").Err() == nil })
	worksAsWorker(t, userOf(t, node, dialing{addrs: []string{node.Addr, node.Addr}},
		slices.Concat(workersRights, []any{"+cluster|slots", "+cluster|shards"})))
}
