package redislock_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

// locksOf returns locks on a server of the test's own, which ends with the test.
func locksOf(t *testing.T) *redislock.RedisLock {
	socket := filepath.Join(t.TempDir(), "socket")
	binary, module := filepath.Join(os.Getenv("REDIS_LOCK_SERVERS"), "redis-7.0.15", "bin", "server"), os.Getenv("REDIS_LOCK_MODULE")
	server := exec.Command(binary, "--port", "0", "--unixsocket", socket, "--save", "", "--loadmodule", module)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for client.Ping(context.Background()).Err() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	return redislock.New(client)
}

func TestTheReadmesFixture(t *testing.T) {
	if err := locksOf(t).NewMutex("jobs:42").TryLock(); err != nil {
		t.Fatal(err)
	}
}
