package redsync

import (
	"context"

	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redislock "github.com/redis-lock/redis-lock/clients/go"
	goredis9 "github.com/redis/go-redis/v9"
)

// pool is a client of the one server. The tests look at a lock's key through it.
type pool struct {
	redis.Pool
	client *goredis9.Client
	locks  *redislock.RedisLock
}

func newPool(addr string) redis.Pool {
	// RESP2, for one shape of LOCK.INFO.
	client := goredis9.NewClient(&goredis9.Options{Addr: addr, Protocol: 2})
	return &pool{goredis.NewPool(client), client, redislock.New(client)}
}

// Get returns redsync's own connection, but for the value of a key.
func (p *pool) Get(ctx context.Context) (redis.Conn, error) {
	c, err := p.Pool.Get(ctx)
	return &conn{c, p.client}, err
}

type conn struct {
	redis.Conn
	client *goredis9.Client
}

// Get returns the token of the holder, which is what a native lock has in place of a value.
func (c *conn) Get(name string) (string, error) {
	// mode, MODE, holders, [[token, TOKEN, …], …], …
	info, _ := c.client.Do(context.Background(), "LOCK.INFO", name).Slice()
	if len(info) < 4 {
		return "", nil
	}
	holders, _ := info[3].([]any)
	if len(holders) == 0 {
		return "", nil
	}
	holder, _ := holders[0].([]any)
	token, _ := holder[1].(string)
	return token, nil
}
