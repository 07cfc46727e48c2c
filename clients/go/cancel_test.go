package redislock

import (
	"errors"
	"fmt"
	"testing"
)

func TestACancelledWaitIsAnErrorOfItsOwn(t *testing.T) {
	locks := newLocks(t)
	holder := locks.NewMutex("a")
	must(t, holder.Lock())
	first := inBackground(locks.NewMutex("a", WithTries(forever)).Lock)
	second := inBackground(locks.NewRWMutex("a", WithTries(forever)).RLock)
	eventually(t, "two places in the queue", func() bool { return waiting("a") == 2 })
	must(t, admin.Do(ctx, "LOCK.CANCEL", "a").Err())
	for _, done := range []<-chan error{first, second} {
		err := result(t, done)
		expect(t, fmt.Sprint(err, " is cancelled"), errors.Is(err, ErrCancelled), true)
	}
	expect(t, "waiters", waiting("a"), 0)
	released(t)(holder.Unlock())
}
