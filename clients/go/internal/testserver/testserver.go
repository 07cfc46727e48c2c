// Package testserver starts servers with the module for the tests, by clients/testing/servers.py. REDIS_LOCK_MODULE and
// REDIS_LOCK_SERVERS say where they are, by default where `make build servers` at the top of the project puts them;
// REDIS_LOCK_SERVER says which to take.
package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// A Server runs until Stop.
type Server struct {
	Addr string
	pid  int
	stop func() error
}

// Start starts a server, with words of the module and further settings if there are any, or with --without-module.
func Start(words ...string) (*Server, error) {
	servers, err := Launch(append([]string{"server"}, words...)...)
	if err != nil {
		return nil, err
	}
	return servers[0], nil
}

// Launch starts several servers, as servers.py says.
func Launch(words ...string) (servers []*Server, err error) {
	_, here, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(here), "..", "..", "..", "testing", "servers.py")
	launcher := exec.Command("python3", append([]string{script}, words...)...)
	launcher.Stderr = os.Stderr
	stdin, _ := launcher.StdinPipe() // With it the launcher ends.
	stdout, _ := launcher.StdoutPipe()
	if err := launcher.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	for _, one := range strings.Fields(line) {
		server := &Server{stop: func() error { return errors.Join(stdin.Close(), launcher.Wait()) }}
		var port int
		_, err = fmt.Sscanf(one, "%d/%d", &port, &server.pid)
		server.Addr = fmt.Sprintf("127.0.0.1:%d", port)
		servers = append(servers, server)
	}
	return servers, err
}

// Kill ends the server, which can tell nobody.
func (s *Server) Kill() { _ = syscall.Kill(s.pid, syscall.SIGKILL) }

// Stop ends the server, and those that were started with it.
func (s *Server) Stop() { _ = s.stop() }

// Client returns a new client of the server with go-redis' own settings.
func (s *Server) Client() *redis.Client { return redis.NewClient(&redis.Options{Addr: s.Addr}) }
