package testserver

import (
	"context"
	"errors"
	"net"
)

var ctx = context.Background()

// A Watched is a primary with a replica, and a Sentinel that promotes the replica when the primary is gone.
type Watched struct {
	Primary, Replica, Sentinel *Server
}

// Master is the name that the Sentinel knows the primary by.
const Master = "locks"

// StartWatched starts the three. Each knows the others.
func StartWatched() (*Watched, error) {
	g, err := launch("sentinel")
	if err != nil {
		return nil, err
	}
	return &Watched{g.servers[0], g.servers[1], g.servers[2]}, nil
}

// Stop ends those that run.
func (w *Watched) Stop() { w.Primary.Stop() }

// A Cluster has three primaries. The first one has a replica, and the slots up to a third.
type Cluster struct {
	Primaries [3]*Server
	Replica   *Server
	ids       map[*Server]string
}

const slots = 16_384

// StartCluster starts the four. Each knows that all slots are served.
func StartCluster() (*Cluster, error) {
	g, err := launch("cluster")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Primaries: [3]*Server(g.servers[:3]), Replica: g.servers[3], ids: map[*Server]string{}}
	for _, server := range g.servers {
		client := server.Client()
		defer client.Close()
		if c.ids[server], err = client.Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
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
func (c *Cluster) Stop() { c.Replica.Stop() }
