package redislock

import (
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// tokenWaiting returns what LOCK.INFO says of the token of the only waiter for a key.
func tokenWaiting(client *redis.Client, key string) string {
	return regexp.MustCompile(`token[: ][^ \]]+`).FindString(queueOf(client, key))
}

// survives has a holder and a waiter at work while the primary of the key is killed, and its replica takes its place. Both go on there.
func survives(t *testing.T, locks *RedisLock, key string, primary, replica *testserver.Server) {
	t.Helper()
	before, after := clientOf(t, primary), clientOf(t, replica)
	later := "{" + key + "}later"
	holder := locks.NewMutex(key, minute)
	must(t, holder.Lock())
	waiter := locks.NewMutex(key, WithTries(forever), minute)
	done := inBackground(t, waiter.Lock)
	eventually(t, "a place in the queue", func() bool { return waiting(before, key) == 1 })
	token := tokenWaiting(before, key)
	// The replica has the hold when it has what came after it.
	must(t, locks.NewMutex(later).Lock())
	reading := after.Conn()
	defer reading.Close()
	_ = reading.ReadOnly(ctx).Err() // A cluster's answers MOVED otherwise.
	eventually(t, "a replica that has the hold", func() bool { return reading.Exists(ctx, later).Val() == 1 })

	primary.Kill()
	says(t, locks.NewMutex(key, WithTries(2), WithRetryDelay(300*time.Millisecond)).Lock(), nil) // In its own time.
	eventually(t, "a place at the new primary", func() bool { return waiting(after, key) == 1 })
	expect(t, "the same token", token != "" && tokenWaiting(after, key) == token, true)

	fence := holder.Fence()
	eventually(t, "an extension there", func() bool { ok, _ := holder.Extend(); return ok })
	expect(t, "the fence stays", holder.Fence(), fence)
	released(t)(holder.Unlock())
	must(t, done())
	expect(t, "the waiter's token", strings.HasSuffix(token, waiter.Value()), true)
	expect(t, "fences rise over the failover", waiter.Fence() > fence, true)
	released(t)(waiter.Unlock())
}

func TestSentinelFailoverInTheMiddleOfAHoldAndAWait(t *testing.T) {
	t.Parallel()
	servers := launched(t, "sentinel") // a primary, a replica, and a Sentinel
	survives(t, connected(t, dialing{addrs: []string{servers[2].Addr}, master: "locks"}), "a", servers[0], servers[1])
}

func TestACluster(t *testing.T) {
	t.Parallel()
	servers := launched(t, "cluster") // three primaries, and a replica of the first
	addrs := dialing{addrs: []string{servers[0].Addr, servers[1].Addr, servers[2].Addr}}
	locks, stale := connected(t, addrs), connected(t, addrs)
	first := clientOf(t, servers[0])
	t.Run("several names are in one slot", func(t *testing.T) {
		says(t, locks.NewMultiMutex([]string{"a", "b"}, nil).Lock(), nil, "CROSSSLOT")
		got(t, "x")(locks.Once(ctx, "a", value("x")))
		both := locks.NewMultiMutex([]string{"{x}a", "{x}b"}, nil, WithLinger(20*time.Second))
		must(t, both.Lock())
		released(t)(both.Extend())
		must(t, both.Exec(ctx, "SET", "{x}c", 1).Err())
		released(t)(both.Unlock())
	})
	t.Run("a slot moves under a holder and a waiter", func(t *testing.T) {
		slot := first.ClusterKeySlot(ctx, "{b}x").Val()
		node := int(slot * 3 / 16_384) // So the cluster began.
		from, to, third := clientOf(t, servers[node]), clientOf(t, servers[(node+1)%3]), clientOf(t, servers[(node+2)%3])
		id := func(client *redis.Client) string { return client.Do(ctx, "CLUSTER", "MYID").Val().(string) }
		setSlot := func(client *redis.Client, what string, of *redis.Client) {
			must(t, client.Do(ctx, "CLUSTER", "SETSLOT", slot, what, id(of)).Err())
		}
		holder, waiter := locks.NewMutex("{b}x", minute), locks.NewMutex("{b}x", WithTries(forever))
		must(t, holder.Lock())
		refused(t, stale.NewMutex("{b}x").TryLock()) // It knows the nodes as they are now.
		turn := func(mutex *Mutex) func() error {    // They come in any order at the new node.
			return inBackground(t, func() error {
				err := mutex.Lock()
				_, failed := mutex.Unlock()
				return errors.Join(err, failed)
			})
		}
		done := turn(waiter)
		eventually(t, "a place in the queue", func() bool { return waiting(from, "{b}x") == 1 })
		setSlot(to, "IMPORTING", from)
		setSlot(from, "MIGRATING", to)
		host, port, _ := net.SplitHostPort(to.Options().Addr)
		must(t, from.Migrate(ctx, host, port, "{b}x", 0, 5*time.Second).Err())
		// This key is not at its node any more, which says ASK.
		eventually(t, "a waiter that followed ASK", func() bool { return calls(t, to, "lock.acquire") > 0 })
		released(t)(holder.Extend())
		// One key is here and one is there: TRYAGAIN.
		must(t, locks.NewMutex("{b}y").TryLock())
		multi := turn(locks.NewMultiMutex([]string{"{b}x", "{b}z"}, nil, WithTries(forever)))
		eventually(t, "a multi-mutex that is told so", func() bool { return strings.Contains(to.Info(ctx, "errorstats").Val(), "TRYAGAIN") })
		setSlot(to, "NODE", to)
		setSlot(from, "NODE", to)
		eventually(t, "places at the new node", func() bool { return waiting(to, "{b}x") == 2 })
		released(t)(holder.Unlock())
		must(t, done())
		must(t, multi())
		expect(t, "fences rise", waiter.Fence() > holder.Fence(), true)
		setSlot(third, "IMPORTING", to)
		setSlot(to, "MIGRATING", third)
		must(t, stale.NewMutex("{b}n", WithLinger(20*time.Second)).TryLock()) // MOVED, and then ASK.
	})
	t.Run("only primaries are asked", func(t *testing.T) { // A replica's answer may be old. Key f is on the node that has one.
		mutex := locks.NewMutex("f")
		must(t, mutex.Lock())
		for range 30 {
			released(t)(mutex.Check(ctx))
		}
		expect(t, "checks at the replica", calls(t, clientOf(t, servers[3]), "lock.check"), 0)
		released(t)(mutex.Unlock())
	})
	t.Run("a failover in the middle of a hold and a wait", func(t *testing.T) { survives(t, locks, "f", servers[0], servers[3]) })
}
