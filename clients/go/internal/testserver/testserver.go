// Package testserver starts servers with the module for the tests. REDIS_LOCK_MODULE and REDIS_LOCK_SERVERS say where
// they are, by default where `make build servers` at the top of the project puts them; REDIS_LOCK_SERVER says which to take.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server runs until Stop.
type Server struct {
	Addr   string
	Cmd    *exec.Cmd
	ended  chan struct{}
	folder string
}

// Start starts a server, with further settings if there are any, and waits until it answers.
func Start(settings ...string) (*Server, error) {
	return try(func(_ *Server) []string {
		return append([]string{"--loadmodule", setting("REDIS_LOCK_MODULE", inProject("target/release/libredis_lock.so"))}, settings...)
	})
}

// StartWithoutModule starts a server that does not have the module.
func StartWithoutModule(settings ...string) (*Server, error) {
	return try(func(_ *Server) []string { return settings })
}

// try starts a server with settings that may depend on its port and its folder.
func try(settings func(*Server) []string) (*Server, error) {
	// A port that was free a moment ago may not be free any more.
	var err error
	for range [5]struct{}{} {
		var server *Server
		if server, err = start(settings); err == nil {
			return server, nil
		}
	}
	return nil, err
}

// highestPort leaves room for the port of a cluster's bus, which is 10000 more.
const highestPort = 55_000

func freePort() (int, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		if err := listener.Close(); err != nil || port <= highestPort {
			return port, err
		}
	}
}

func start(settings func(*Server) []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "redis-lock-go-")
	if err != nil {
		return nil, err
	}
	program := filepath.Join(setting("REDIS_LOCK_SERVERS", inProject(".servers")), setting("REDIS_LOCK_SERVER", "redis-7.0.15"), "bin", "server")
	server := &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), ended: make(chan struct{}), folder: folder}
	args := settings(server)
	if len(args) == 0 || args[0] != server.config() { // A Sentinel has all in its file.
		args = append(args, "--save", "", "--appendonly", "no")
		args = append(args, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", folder, "--logfile", filepath.Join(folder, "log"))
	}
	cmd := exec.Command(program, args...)
	server.Cmd = cmd
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(server.ended)
	}()
	if err := server.await(); err != nil {
		log, _ := os.ReadFile(filepath.Join(folder, "log"))
		server.Stop()
		return nil, fmt.Errorf("%s does not answer: %w\n%s", program, err, log)
	}
	return server, nil
}

// await asks until the server that answers is the one that was started.
func (s *Server) await() (err error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer client.Close()
	pid := fmt.Sprintf("process_id:%d\r\n", s.Cmd.Process.Pid)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		select {
		case <-s.ended:
			return errors.New("it ended")
		case <-time.After(10 * time.Millisecond):
		}
		// The client would log every attempt.
		var conn net.Conn
		if conn, err = net.Dial("tcp", s.Addr); err != nil {
			continue
		}
		_ = conn.Close()
		var info string
		info, err = client.Info(context.Background(), "server").Result()
		if err == nil {
			if !strings.Contains(info, pid) {
				return fmt.Errorf("another server has the port %s", s.Addr)
			}
			return nil
		}
	}
	return err
}

// Kill ends the server, which can tell nobody.
func (s *Server) Kill() {
	_ = s.Cmd.Process.Kill()
	<-s.ended
}

// Stop ends the server and removes what it left.
func (s *Server) Stop() {
	s.Kill()
	_ = os.RemoveAll(s.folder)
}

func (s *Server) config() string { return filepath.Join(s.folder, "sentinel.conf") }

// Client returns a new client of the server with go-redis' own settings.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr})
}

// setting returns an environment variable, or a default.
func setting(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

// inProject returns the path of a file of the project.
func inProject(path string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "..", "..", path)
}
