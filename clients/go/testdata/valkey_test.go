package redislock

// The tests of this module on the driver for valkey. The file is laid over the package by the Makefile, with a go.mod that knows valkey-go,
// so that the package itself does not depend on it.

import (
	"net"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis-lock/redis-lock/clients/go/valkeydriver"
	"github.com/valkey-io/valkey-go"
)

func init() {
	libraries["valkey-go"] = func(d dialing) (driver.Driver, func(), error) {
		options := valkey.ClientOption{
			InitAddress:       d.addrs,
			Username:          d.user,
			Password:          d.secret,
			ForceSingleClient: !d.cluster && d.master == "",
			DisableCache:      true,
			// The proxy of the tests loses the next reply, which shall not be that of a PING or of another connection's handshake.
			PipelineMultiplex: -1,
			Dialer:            net.Dialer{KeepAlive: time.Hour},
			Sentinel:          valkey.SentinelOption{MasterSet: d.master},
		}
		if d.narrow {
			options.BlockingPoolSize = 1
		}
		client, err := valkey.NewClient(options)
		if err != nil {
			return nil, nil, err
		}
		return valkeydriver.New(client), func() {
			// An older version waits for a server that is silent.
			closed := make(chan struct{})
			go func() {
				client.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(2 * time.Second):
			}
		}, nil
	}
}
