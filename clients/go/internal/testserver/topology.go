package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// await asks until a condition holds, for a while that only a bug or a dead machine outlasts.
func await(what string, condition func() bool) error {
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if condition() {
			return nil
		}
	}
	return errors.New("it never happened: " + what)
}

// A Watched is a primary with a replica, and a Sentinel that promotes the replica when the primary is gone.
type Watched struct {
	Primary, Replica, Sentinel *Server
}

// Master is the name that the Sentinel knows the primary by.
const Master = "locks"

// StartWatched starts the three, and waits until the replica has the primary's data and the Sentinel knows both.
func StartWatched(settings ...string) (w *Watched, err error) {
	w = &Watched{}
	defer func() {
		if err != nil {
			w.Stop()
		}
	}()
	if w.Primary, err = Start(settings...); err != nil {
		return w, err
	}
	host, port, _ := net.SplitHostPort(w.Primary.Addr)
	if w.Replica, err = Start(append(settings, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")...); err != nil {
		return w, err
	}
	primary := w.Primary.Client()
	defer primary.Close()
	if err = await("a replica", func() bool {
		return strings.Contains(primary.Info(ctx, "replication").Val(), "state=online")
	}); err != nil {
		return w, err
	}
	w.Sentinel, err = try(func(server *Server) []string {
		_, own, _ := net.SplitHostPort(server.Addr)
		config := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nlogfile %[2]s/log\n", own, server.folder)
		config += fmt.Sprintf("sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 5000\n",
			Master, host, port)
		_ = os.WriteFile(server.config(), []byte(config), 0o600)
		return []string{server.config(), "--sentinel"}
	})
	if err != nil {
		return w, err
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: w.Sentinel.Addr})
	defer sentinel.Close()
	return w, await("a Sentinel that knows the replica", func() bool {
		replicas, err := sentinel.Replicas(ctx, Master).Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
}

// Stop ends those that run.
func (w *Watched) Stop() {
	for _, server := range []*Server{w.Sentinel, w.Replica, w.Primary} {
		if server != nil {
			server.Stop()
		}
	}
}

// A Cluster has three primaries. The first one has a replica, and the slots up to a third.
type Cluster struct {
	Primaries [3]*Server
	Replica   *Server
	ids       map[*Server]string
}

const slots = 16_384

// StartCluster starts the four, and waits until each knows that all slots are served.
func StartCluster() (c *Cluster, err error) {
	c = &Cluster{ids: map[*Server]string{}}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	for i := range c.Primaries {
		if c.Primaries[i], err = startNode(); err != nil {
			return c, err
		}
	}
	if c.Replica, err = startNode(); err != nil {
		return c, err
	}
	for i, server := range c.servers() {
		client := server.Client()
		defer client.Close()
		if c.ids[server], err = client.Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
			return c, err
		}
		// Each has an epoch of its own, so that they need not agree on that first.
		if err = client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return c, err
		}
		if i < len(c.Primaries) {
			if err = client.ClusterAddSlotsRange(ctx, i*slots/3, (i+1)*slots/3-1).Err(); err != nil {
				return c, err
			}
		}
		if i > 0 {
			host, port, _ := net.SplitHostPort(c.Primaries[0].Addr)
			if err = client.ClusterMeet(ctx, host, port).Err(); err != nil {
				return c, err
			}
		}
	}
	replica := c.Replica.Client()
	defer replica.Close()
	if err = await("a replica", func() bool { return replica.ClusterReplicate(ctx, c.ids[c.Primaries[0]]).Err() == nil }); err != nil {
		return c, err
	}
	return c, await("a cluster that is up", func() bool {
		for _, server := range c.servers() {
			client := server.Client()
			info, nodes := client.ClusterInfo(ctx).Val(), client.ClusterNodes(ctx).Val()
			_ = client.Close()
			if !strings.Contains(info, "cluster_state:ok") || strings.Count(nodes, " connected") != 4 || !strings.Contains(nodes, "slave "+c.ids[c.Primaries[0]]) {
				return false
			}
		}
		return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:up")
	})
}

func startNode() (*Server, error) {
	return Start("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--repl-diskless-sync-delay", "0",
		"--cluster-replica-validity-factor", "0")
}

func (c *Cluster) servers() (servers []*Server) {
	for _, server := range append(c.Primaries[:], c.Replica) {
		if server != nil {
			servers = append(servers, server)
		}
	}
	return servers
}

// Addrs are the addresses of the primaries.
func (c *Cluster) Addrs() (addrs []string) {
	for _, server := range c.Primaries {
		addrs = append(addrs, server.Addr)
	}
	return addrs
}

// Owner is the primary that has a key by the division with which the cluster began.
func (c *Cluster) Owner(key string) (*Server, int) {
	client := c.Primaries[0].Client()
	defer client.Close()
	slot := int(client.ClusterKeySlot(ctx, key).Val())
	for i, server := range c.Primaries {
		if slot < (i+1)*slots/3 {
			return server, slot
		}
	}
	return nil, slot
}

// BeginMove tells both that a slot is on its way.
func (c *Cluster) BeginMove(slot int, from, to *Server) error {
	return errors.Join(do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from]), do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to]))
}

// MoveKey carries one key.
func (c *Cluster) MoveKey(key string, from, to *Server) error {
	host, port, _ := net.SplitHostPort(to.Addr)
	return do(from, "MIGRATE", host, port, key, 0, 5000)
}

// EndMove tells all that the slot has arrived.
func (c *Cluster) EndMove(slot int, from, to *Server) error {
	var all []error
	all = append(all, do(to, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to]), do(from, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to]))
	for _, server := range c.Primaries {
		if server != from && server != to {
			all = append(all, do(server, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to]))
		}
	}
	return errors.Join(all...)
}

func do(server *Server, args ...any) error {
	client := server.Client()
	defer client.Close()
	return client.Do(ctx, args...).Err()
}

// Stop ends those that run.
func (c *Cluster) Stop() {
	for _, server := range c.servers() {
		server.Stop()
	}
}
