module github.com/redis-lock/redis-lock/clients/go/peers

go 1.23

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.13.0
	github.com/redis-lock/redis-lock/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.18.0
	golang.org/x/sync v0.10.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace github.com/redis-lock/redis-lock/clients/go => ../
