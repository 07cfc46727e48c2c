package redislock

// The tests of this module on the driver for rueidis. The file is laid over the package by the Makefile, with a go.mod that knows rueidis,
// so that the package itself does not depend on it.

import (
	"net"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis-lock/redis-lock/clients/go/rueidisdriver"
	"github.com/redis/rueidis"
)

func init() {
	libraries["rueidis"] = func(d dialing) (driver.Driver, func(), error) {
		options := rueidis.ClientOption{
			InitAddress:       d.addrs,
			Username:          d.user,
			Password:          d.secret,
			ForceSingleClient: len(d.addrs) == 1 && d.master == "",
			DisableCache:      true,
			// The proxy of the tests loses the next reply, which shall not be that of a PING or of another connection's handshake.
			PipelineMultiplex: -1,
			Dialer:            net.Dialer{KeepAlive: time.Hour},
			Sentinel:          rueidis.SentinelOption{MasterSet: d.master},
		}
		client, err := rueidis.NewClient(options)
		if err != nil {
			return nil, nil, err
		}
		return rueidisdriver.New(client), client.Close, nil
	}
}
