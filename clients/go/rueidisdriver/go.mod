module github.com/redis-lock/redis-lock/clients/go/rueidisdriver

go 1.23

require (
	github.com/redis-lock/redis-lock/clients/go v0.1.0
	github.com/redis/rueidis v1.0.19
)

replace github.com/redis-lock/redis-lock/clients/go => ../
