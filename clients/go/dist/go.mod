module github.com/redis-lock/redis-lock/clients/go/dist

go 1.23

require (
	github.com/redis-lock/redis-lock/clients/go v0.4.0
	golang.org/x/mod v0.22.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/redis/go-redis/v9 v9.0.0 // indirect
)

replace github.com/redis-lock/redis-lock/clients/go => ../
