package redislock

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// tokenWaiting returns the token of the only waiter for a key.
func tokenWaiting(client *redis.Client, key string) string {
	found := regexp.MustCompile(`token[: ]([^ \]]+)`).FindStringSubmatch(queueOf(client, key))
	if found == nil {
		return ""
	}
	return found[1]
}

// survives has a holder and a waiter at work while fail ends the primary of the key, and another takes its place. Both go on there.
func survives(t *testing.T, locks *RedisLock, key string, before, after *redis.Client, fail func()) {
	t.Helper()
	later := "{" + key + "}later"
	holder := locks.NewMutex(key, WithExpiry(time.Minute))
	must(t, holder.Lock())
	waiter := locks.NewMutex(key, WithTries(forever), WithExpiry(time.Minute))
	done := inBackground(waiter.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting(before, key) == 1 })
	token := tokenWaiting(before, key)
	// The replica has the hold when it has what came after it.
	must(t, locks.NewMutex(later).Lock())
	eventually(t, "a replica that has the hold", func() bool { return replicated(after, later) })

	fail()
	says(t, locks.NewMutex(key, WithTries(2), WithRetryDelay(300*time.Millisecond)).Lock(), nil) // In its own time.
	eventually(t, "a place at the new primary", func() bool { return waiting(after, key) == 1 })
	expect(t, "the same token", token != "" && tokenWaiting(after, key) == token, true)

	fence := holder.Fence()
	eventually(t, "an extension there", func() bool { ok, _ := holder.Extend(); return ok })
	expect(t, "the fence stays", holder.Fence(), fence)
	released(t)(holder.Unlock())
	must(t, result(t, done))
	expect(t, "the waiter's token", waiter.Value(), token)
	expect(t, "fences rise over the failover", waiter.Fence() > fence, true)
	released(t)(waiter.Unlock())
}

// replicated tells whether a replica has a key. A cluster's answers MOVED otherwise.
func replicated(replica *redis.Client, key string) bool {
	connection := replica.Conn()
	defer connection.Close()
	_ = connection.ReadOnly(ctx).Err()
	return connection.Exists(ctx, key).Val() == 1
}

func TestSentinelFailoverInTheMiddleOfAHoldAndAWait(t *testing.T) {
	t.Parallel()
	watched, err := testserver.StartWatched()
	must(t, err)
	t.Cleanup(watched.Stop)
	locks := connected(t, dialing{addrs: []string{watched.Sentinel.Addr}, master: testserver.Master})
	survives(t, locks, "a", clientOf(t, watched.Primary), clientOf(t, watched.Replica), watched.Primary.Kill)
}

func TestClusterSlotMovesUnderAWaiterAndAClusterFailover(t *testing.T) {
	t.Parallel()
	cluster, err := testserver.StartCluster()
	must(t, err)
	t.Cleanup(cluster.Stop)
	locks := connected(t, dialing{addrs: cluster.Addrs(), cluster: true})
	t.Run("locks are spread by key", func(t *testing.T) { clusterSpreads(t, cluster, locks) })
	t.Run("a slot moves under a waiter", func(t *testing.T) { clusterSlotMoves(t, cluster, locks) })
	t.Run("a waiter follows ASK and TRYAGAIN", func(t *testing.T) { clusterAsks(t, cluster, locks) })
	from, _ := cluster.Owner("f")
	expect(t, "it is the one that has a replica", from == cluster.Primaries[0], true)
	first, second := clientOf(t, from), clientOf(t, cluster.Replica)
	t.Run("only primaries are asked", func(t *testing.T) { clusterAsksPrimaries(t, cluster, locks) })
	t.Run("a clean failover between two waits", func(t *testing.T) { clusterHandsOver(t, locks, first, second) })
	t.Run("a failover in the middle of a hold and a wait", func(t *testing.T) { survives(t, locks, "f", second, first, cluster.Replica.Kill) })
}

// clusterHandsOver has one slot's waiters return at a primary, and at the replica that takes over from it.
func clusterHandsOver(t *testing.T, locks *RedisLock, primary, replica *redis.Client) {
	waitsAt(t, locks, "f", primary)
	must(t, replica.ClusterFailover(ctx).Err())
	eventually(t, "a promotion", func() bool { return strings.Contains(replica.Info(ctx, "replication").Val(), "role:master") })
	waitsAt(t, locks, "f", replica)
}

// waitsAt has a waiter get the lock at a primary.
func waitsAt(t *testing.T, locks *RedisLock, key string, primary *redis.Client) {
	t.Helper()
	holder, waiter := locks.NewMutex(key, WithTries(forever)), locks.NewMutex(key, WithTries(forever))
	must(t, holder.Lock())
	done := inBackground(waiter.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting(primary, key) == 1 })
	released(t)(holder.Unlock())
	must(t, result(t, done))
	released(t)(waiter.Unlock())
}

func clusterSpreads(t *testing.T, cluster *testserver.Cluster, locks *RedisLock) {
	used := map[*testserver.Server]bool{}
	for i := 0; len(used) < 3 && i < 100; i++ {
		mutex := locks.NewMutex(fmt.Sprint("spread", i))
		must(t, mutex.Lock())
		owner, _ := cluster.Owner(mutex.Name())
		expect(t, "it is on its node", clientOf(t, owner).Exists(ctx, mutex.Name()).Val(), 1)
		used[owner] = true
		released(t)(mutex.Unlock())
	}
	expect(t, "nodes", len(used), 3)
	says(t, locks.NewMultiMutex([]string{"spread1", "spread2"}, nil).Lock(), nil, "CROSSSLOT")
	got(t, "x")(locks.Once(ctx, "spread1", value("x")))
	both := locks.NewMultiMutex([]string{"{x}a", "{x}b"}, nil, WithLinger(20*time.Second))
	must(t, both.Lock())
	released(t)(both.Extend())
	must(t, both.Exec(ctx, "SET", "{x}c", 1).Err())
	released(t)(both.Unlock())
}

// clusterAsksPrimaries has a client that sends what only reads to any node of the slot. A replica's answer may be old.
func clusterAsksPrimaries(t *testing.T, cluster *testserver.Cluster, locks *RedisLock) {
	mutex, replica := locks.NewMutex("f"), clientOf(t, cluster.Replica)
	must(t, mutex.Lock())
	for range 30 {
		released(t)(mutex.Check(ctx))
	}
	expect(t, "checks at the replica", calls(t, replica, "lock.check"), 0)
	released(t)(mutex.Unlock())
}

func clusterSlotMoves(t *testing.T, cluster *testserver.Cluster, locks *RedisLock) {
	from, slot := cluster.Owner("b")
	to := cluster.Primaries[2]
	expect(t, "another node", from != to, true)
	holder := locks.NewMutex("b", WithExpiry(time.Minute))
	must(t, holder.Lock())
	waiter := locks.NewMutex("b", WithTries(forever))
	done := inBackground(waiter.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting(clientOf(t, from), "b") == 1 })
	must(t, cluster.BeginMove(slot, from, to))
	must(t, cluster.MoveKey("b", from, to))
	must(t, cluster.EndMove(slot, from, to))
	eventually(t, "a place at the new node", func() bool { return waiting(clientOf(t, to), "b") == 1 })
	released(t)(holder.Extend())
	released(t)(holder.Unlock())
	must(t, result(t, done))
	expect(t, "fences rise", waiter.Fence() > 0, true)
	released(t)(waiter.Unlock())
}

// clusterAsks has a slot stay half way, as it does while many keys are moved.
func clusterAsks(t *testing.T, cluster *testserver.Cluster, locks *RedisLock) {
	from, slot := cluster.Owner("{c}x")
	to := cluster.Primaries[0]
	if from == to {
		to = cluster.Primaries[1]
	}
	holder := locks.NewMutex("{c}x", WithExpiry(time.Minute))
	must(t, holder.Lock())
	must(t, cluster.BeginMove(slot, from, to))
	must(t, cluster.MoveKey("{c}x", from, to))
	target := clientOf(t, to)
	must(t, target.ConfigResetStat(ctx).Err())
	// This key is not at its node any more, which says ASK.
	waiter := locks.NewMutex("{c}x", WithTries(forever))
	done := inBackground(waiter.Lock)
	eventually(t, "a waiter that followed ASK", func() bool { return calls(t, target, "lock.acquire") > 0 })
	released(t)(holder.Extend())
	// One key is here and one is there: TRYAGAIN.
	must(t, locks.NewMutex("{c}y").TryLock())
	both := locks.NewMultiMutex([]string{"{c}x", "{c}z"}, nil, WithTries(forever))
	multi := inBackground(both.Lock)
	select {
	case err := <-done:
		t.Fatal("the waiter returned: ", err)
	case err := <-multi:
		t.Fatal("the multi-mutex returned: ", err)
	case <-time.After(300 * time.Millisecond):
	}
	must(t, cluster.EndMove(slot, from, to))
	released(t)(holder.Unlock())
	must(t, result(t, done))
	released(t)(waiter.Unlock())
	must(t, result(t, multi))
	released(t)(both.Unlock())
}
