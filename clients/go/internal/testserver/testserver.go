// Package testserver starts servers with the module for the tests, by clients/testing/servers.py. REDIS_LOCK_MODULE and
// REDIS_LOCK_SERVERS say where they are, by default where `make build servers` at the top of the project puts them;
// REDIS_LOCK_SERVER says which to take.
package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Server runs until Stop.
type Server struct {
	Addr  string
	pid   int
	group *group
}

// A group is what one call of the launcher has started. It ends with its standard input.
type group struct {
	launcher *exec.Cmd
	stdin    io.Closer
	servers  []*Server
}

func launch(words ...string) (*group, error) {
	_, here, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(here), "..", "..", "..", "testing", "servers.py")
	g := &group{launcher: exec.Command("python3", append([]string{script}, words...)...)}
	g.launcher.Stderr = os.Stderr
	stdin, err := g.launcher.StdinPipe()
	if err != nil {
		return nil, err
	}
	g.stdin = stdin
	stdout, err := g.launcher.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.launcher.Start(); err != nil {
		return nil, err
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	for _, one := range strings.Fields(line) {
		server := &Server{group: g}
		var port int
		if _, err := fmt.Sscanf(one, "%d/%d", &port, &server.pid); err != nil {
			g.stop()
			return nil, err
		}
		server.Addr = fmt.Sprintf("127.0.0.1:%d", port)
		g.servers = append(g.servers, server)
	}
	if len(g.servers) == 0 {
		g.stop()
		return nil, errors.New("no server started")
	}
	return g, nil
}

func (g *group) stop() {
	_ = g.stdin.Close()
	_ = g.launcher.Wait()
}

// Start starts a server, with words of the module and further settings if there are any, or with --without-module.
func Start(words ...string) (*Server, error) {
	g, err := launch(append([]string{"server"}, words...)...)
	if err != nil {
		return nil, err
	}
	return g.servers[0], nil
}

// Kill ends the server, which can tell nobody.
func (s *Server) Kill() {
	if process, err := os.FindProcess(s.pid); err == nil {
		_ = process.Kill()
	}
}

// Stop ends the server, and those that were started with it.
func (s *Server) Stop() { s.group.stop() }

// Client returns a new client of the server with go-redis' own settings.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr})
}
