package redislock

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// A dialing says what a driver under test is to connect to.
type dialing struct {
	addrs   []string // of one server, of Sentinels, or of a cluster
	master  string   // the name that the Sentinels know the primary by
	cluster bool
	narrow  bool // as few connections as the library can do with
	user    string
	secret  string
}

// libraries are the drivers that the tests can run on. testdata/drivers_test.go adds those of the other modules.
var libraries = map[string]func(dialing) (driver.Driver, func(), error){"": goRedisOf, "go-redis": goRedisOf}

func goRedisOf(d dialing) (driver.Driver, func(), error) {
	client := goRedisClient(d)
	return newGoRedis(client, longestSlice+margin), func() { _ = client.Close() }, nil
}

func goRedisClient(d dialing) redis.UniversalClient {
	switch {
	case d.cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.addrs, Username: d.user, Password: d.secret})
	case d.master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: d.master, SentinelAddrs: d.addrs, Username: d.user, Password: d.secret,
		})
	case d.narrow:
		return redis.NewClient(&redis.Options{
			Addr: d.addrs[0], PoolSize: 1, PoolTimeout: 2 * time.Second, ReadTimeout: time.Minute,
		})
	}
	return redis.NewClient(&redis.Options{Addr: d.addrs[0], Username: d.user, Password: d.secret})
}

// connect returns a RedisLock on the driver under test: REDIS_LOCK_DRIVER names it.
func connect(d dialing, options ...ClientOption) (*RedisLock, func(), error) {
	open := libraries[os.Getenv("REDIS_LOCK_DRIVER")]
	if open == nil {
		return nil, nil, fmt.Errorf("there is no driver %q: see the Makefile", os.Getenv("REDIS_LOCK_DRIVER"))
	}
	driver, closeClient, err := open(d)
	if err != nil {
		return nil, nil, err
	}
	locks := NewWith(driver, options...)
	return locks, func() {
		_ = locks.Close()
		closeClient()
	}, nil
}

func connected(t *testing.T, d dialing, options ...ClientOption) *RedisLock {
	t.Helper()
	locks, done, err := connect(d, options...)
	must(t, err)
	t.Cleanup(done)
	return locks
}

// locksTo returns a RedisLock on one server whose keys are left as they are.
func locksTo(t *testing.T, addr string, options ...ClientOption) *RedisLock {
	t.Helper()
	return connected(t, dialing{addrs: []string{addr}}, options...)
}

// A lateReply is a driver that keeps the reply to the first command of a name back: it is there, and its reader is slow.
type lateReply struct {
	driver.Driver
	name          string
	kept          atomic.Bool
	arrived, goOn chan struct{}
}

func newLateReply(locks *RedisLock, name string) *lateReply {
	late := &lateReply{Driver: locks.driver, name: name, arrived: make(chan struct{}), goOn: make(chan struct{})}
	locks.driver = late
	return late
}

func (l *lateReply) Do(ctx context.Context, commands ...driver.Command) []driver.Reply {
	replies := l.Driver.Do(ctx, commands...)
	if commands[0].Args[0] == l.name && l.kept.CompareAndSwap(false, true) {
		close(l.arrived)
		<-l.goOn
	}
	return replies
}

// A fakeReply is a driver that answers the next renewals itself.
type fakeReply struct {
	driver.Driver
	reply driver.Reply
	left  atomic.Int32
}

func (f *fakeReply) Do(ctx context.Context, commands ...driver.Command) []driver.Reply {
	if commands[0].Args[0] == "LOCK.RENEW" && f.left.Add(-1) >= 0 {
		return slices.Repeat([]driver.Reply{f.reply}, len(commands))
	}
	return f.Driver.Do(ctx, commands...)
}

// A lostReply is a driver that loses the reply to the first command that may wait, after which something happens.
type lostReply struct {
	driver.Driver
	happens func()
	lost    atomic.Bool
}

func (l *lostReply) Wait(ctx context.Context, command driver.Command) (driver.Reply, driver.Bound) {
	reply, bound := l.Driver.Wait(ctx, command)
	if l.lost.CompareAndSwap(false, true) {
		l.happens()
		return driver.Reply{Err: io.EOF}, nil
	}
	return reply, bound
}

// A heldBack is a driver that keeps the next command of a name back until it may go on.
type heldBack struct {
	driver.Driver
	name          string
	kept          atomic.Bool
	arrived, goOn chan struct{}
}

func newHeldBack(locks *RedisLock, name string) *heldBack {
	late := &heldBack{Driver: locks.driver, name: name, arrived: make(chan struct{}), goOn: make(chan struct{})}
	locks.waiters.driver = late
	return late
}

func (h *heldBack) Wait(ctx context.Context, command driver.Command) (driver.Reply, driver.Bound) {
	if command.Args[0] == h.name && h.kept.CompareAndSwap(false, true) {
		close(h.arrived)
		<-h.goOn
	}
	return h.Driver.Wait(ctx, command)
}
