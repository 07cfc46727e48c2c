package redislock_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis/go-redis/v9"
)

// locksOf returns locks on a server of the test's own, which ends with the test.
func locksOf(t *testing.T) *redislock.RedisLock {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a free port
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().(*net.TCPAddr)
	listener.Close()
	server := exec.Command(os.Getenv("REDIS_SERVER"), "--port", fmt.Sprint(addr.Port), "--save", "", "--loadmodule", os.Getenv("REDIS_LOCK_MODULE"))
	server.Dir = t.TempDir()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr.String()})
	for i := 0; client.Ping(context.Background()).Err() != nil; i++ {
		if i == 600 {
			t.Fatal("the server does not answer")
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Cleanup(func() {
		client.Close()
		server.Process.Kill()
		server.Wait()
	})
	return redislock.New(client)
}

// needsServer sets what a user of the fixture sets, and checks that the README has the fixture as it is here.
func needsServer(t *testing.T) {
	servers, name := os.Getenv("REDIS_LOCK_SERVERS"), os.Getenv("REDIS_LOCK_SERVER")
	if name == "" {
		name = "redis-7.0.15"
	}
	t.Setenv("REDIS_SERVER", filepath.Join(servers, name, "bin", "server"))
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("fixture_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, fixture, _ := strings.Cut(string(source), "// locksOf")
	fixture, _, _ = strings.Cut(fixture, "\n}\n")
	if !strings.Contains(string(readme), fixture) {
		t.Error("the README has another fixture")
	}
}

func TestThatAJobTakesItsLock(t *testing.T) {
	needsServer(t)
	locks := locksOf(t)
	if err := locks.NewMutex("jobs:42").TryLock(); err != nil {
		t.Fatal(err)
	}
	if err := locks.NewMutex("jobs:42").TryLock(); err == nil {
		t.Fatal("two have it")
	}
}
