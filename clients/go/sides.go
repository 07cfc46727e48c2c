package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// sides are the reader and the writer of a lock. They may have one token, and the server has it in the mode that was asked for last. A
// renewal that asked in the other mode would undo an upgrade, so one that binds and a Lock never ask at the same time.
type sides struct {
	asking sync.RWMutex // a Lock has a share, and a renewal that binds has it alone
	latest atomic.Pointer[Mutex]
}

// isLatest tells whether the other side has not had the lock since.
func (m *Mutex) isLatest() bool {
	if m.sides == nil {
		return true
	}
	latest := m.sides.latest.Load()
	return latest == nil || latest == m
}

// holds tells whether this token is the one of a hold that is not over. A nil Mutex holds nothing.
func (m *Mutex) holds(value string) bool {
	return m != nil && m.Value() == value && time.Now().Before(m.Until())
}

// goOnReading is for a writer that the server may have made a reader without our hearing of it. Others may read, so it is no writer any
// more. To a writer's request the server never says null: the token has a share, which a guard does not grant again, or nothing. A share is
// renewed if the lease is not over; what is lost is released.
func (m *Mutex) goOnReading(ctx context.Context, held hold, lease time.Time, err error) (hold, error) {
	m.sides.latest.Store(m)
	m.otherSide.bind(nil)
	m.otherSide.endBy(time.Now())
	if !errors.Is(err, redis.Nil) {
		return held, err
	}
	// A conversion keeps the fence.
	held.sent, held.fence = time.Now(), max(m.Fence(), m.otherSide.Fence())
	renewed, _, err := m.locks.waiters.do(ctx, 0, about("LOCK.RENEW", m.Name(), held.value, m.expiry.Milliseconds()))
	if err != nil || renewed == 1 && time.Now().Before(lease) {
		return held, err
	}
	m.giveBack(ctx, held.value)
	return held, redis.Nil
}

// leaseOf is the end of the lease that a token has on either side.
func (m *Mutex) leaseOf(value string) time.Time {
	lease := m.otherSide.Until()
	if m.holds(value) && m.Until().After(lease) {
		lease = m.Until()
	}
	return lease
}

// endBy has the lease end at a time, unless it ends before, and tells KeepAlive.
func (m *Mutex) endBy(end time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !end.Before(m.until) {
		return
	}
	m.until = end
	if m.early != nil {
		close(m.early)
		m.early = nil
	}
}

// awaitEnd waits until the lease should be over, or has become shorter.
func (m *Mutex) awaitEnd(ctx context.Context) {
	m.mu.Lock()
	if m.early == nil {
		m.early = make(chan struct{})
	}
	early, timer := m.early, time.NewTimer(time.Until(m.until))
	m.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
}
