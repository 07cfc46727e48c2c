package redsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4/redis"
	redislock "github.com/redis-lock/redis-lock/clients/go"
	goredis "github.com/redis/go-redis/v9"
)

// pool is a client of the one server. The tests look at a lock's key through it.
type pool struct {
	client *goredis.Client
	locks  *redislock.RedisLock
}

func newPool(addr string) *pool {
	// RESP2, for one shape of LOCK.INFO.
	client := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2})
	return &pool{client, redislock.New(client)}
}

// Get returns what the tests take for a connection.
func (p *pool) Get(context.Context) (redis.Conn, error) { return &conn{p}, nil }

// value is the answer to "what is the value of the key", which for a native lock is its holder's token.
func (p *pool) value(name string) (string, error) {
	info, err := p.client.Do(context.Background(), "LOCK.INFO", name).Slice()
	if err != nil || len(info) < 4 {
		return "", ignoreNil(err)
	}
	// mode, MODE, holders, [[token, TOKEN, …], …], …
	holders, _ := info[3].([]any)
	if len(holders) == 0 {
		return "", nil
	}
	holder, _ := holders[0].([]any)
	token, _ := holder[1].(string)
	return token, nil
}

func ignoreNil(err error) error {
	if errors.Is(err, goredis.Nil) {
		return nil
	}
	return err
}

var errNotAsked = errors.New("the tests never asked for this")

// conn is a view of the pool with the methods of redsync's connection.
type conn struct{ pool *pool }

// Get returns the token of the holder.
func (c *conn) Get(name string) (string, error) { return c.pool.value(name) }

// Set writes a string, as an old client would.
func (c *conn) Set(name, value string) (bool, error) {
	err := c.pool.client.Set(context.Background(), name, value, 0).Err()
	return err == nil, err
}

// PTTL is the time that the lock has left.
func (c *conn) PTTL(name string) (time.Duration, error) {
	return c.pool.client.PTTL(context.Background(), name).Result()
}

// SetNX is not used: locking is the client's affair.
func (c *conn) SetNX(string, string, time.Duration) (bool, error) { return false, errNotAsked }

// Eval is not used: locking is the client's affair.
func (c *conn) Eval(*redis.Script, ...any) (any, error) { return nil, errNotAsked }

// Close has nothing to do.
func (c *conn) Close() error { return nil }
