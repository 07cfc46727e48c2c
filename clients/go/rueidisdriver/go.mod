module github.com/redis-lock/redis-lock/clients/go/rueidisdriver

go 1.23.0

require (
	github.com/redis-lock/redis-lock/clients/go v0.4.0
	github.com/redis/rueidis v1.0.60
)

require golang.org/x/sys v0.31.0 // indirect

replace github.com/redis-lock/redis-lock/clients/go => ../
