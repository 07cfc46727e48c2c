module github.com/redis-lock/redis-lock/clients/go/valkeydriver

go 1.23

require (
	github.com/redis-lock/redis-lock/clients/go v0.3.0
	github.com/valkey-io/valkey-go v1.0.53
)

require golang.org/x/sys v0.24.0 // indirect

replace github.com/redis-lock/redis-lock/clients/go => ../
