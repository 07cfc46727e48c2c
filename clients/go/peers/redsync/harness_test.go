package redsync

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-redsync/redsync/v4/redis"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
)

var server *testserver.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if server, err = testserver.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		return m.Run()
	}())
}

type testCase struct {
	poolCount int          //lint:ignore U1000 the tests that read it are not always here
	pools     []redis.Pool //lint:ignore U1000 as above
}

// makeCases is called by redsync's tests. There they have six drivers with poolCount servers each; here it is one driver, and
// all pools lead to the one server.
func makeCases(poolCount int) map[string]*testCase {
	pools := make([]redis.Pool, poolCount)
	for i := range pools {
		pools[i] = newPool(server.Addr)
	}
	return map[string]*testCase{"goredis_v9": {poolCount, pools}}
}

var _ = makeCases // the tests that call it are not always here
