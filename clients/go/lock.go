package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// pause is the longest time between two questions that the server cannot make wait: to a key that an old client holds, after a lost
// connection, and while a guard answers at once.
const pause = 50 * time.Millisecond

// tryAgain is the time after which a renewal is sent again that the server could not answer yet.
const tryAgain = 200 * time.Millisecond

// A hold is what the server granted.
type hold struct {
	value string
	fence int64
	sent  time.Time // before the command that began the lease
	again bool      // the library has sent the acquire again: an answer may be lost
}

// lock asks until the lock is had, patience or ctx is over, or something happens that waiting does not cure. It asks with
// one token throughout, so that a hold whose reply was lost is had by asking again, and a place in the queue is kept.
func (m *Mutex) lock(ctx context.Context, patience time.Duration) error {
	if err := m.wrong(); err != nil {
		return err
	}
	value, err := m.genValueFunc()
	if err != nil {
		return err
	}
	if m.locks.chosen() == theFallback {
		return m.fallbackLock(ctx, value, patience)
	}
	deadline := time.Now().Add(patience)
	if m.sides != nil {
		m.sides.asking.RLock()
		defer m.sides.asking.RUnlock()
	}
	grace := m.grace
	// Also one that reads already and asks once more.
	converts := m.otherSide.holds(value) || m.acquire == acquireShare && m.holds(value)
	var lease time.Time
	if converts {
		lease = m.leaseOf(value)
		grace = 0 // A release that gives the place up would end the hold that the token has.
	}
	left := false    // the server may have a hold or a place of ours that only we would end
	lowered := false // the server may have made a reader of the writer that the token was
	for {
		began, wait, sends := time.Now(), time.Until(deadline), ctx.Err() == nil
		if lowered {
			wait = min(wait, time.Millisecond) // The server does it at once or never.
		}
		held, err := m.ask(ctx, value, wait, grace)
		m.locks.choose(err)
		unheard := sends && (held.fence != 0 || held.again || !answered(err))
		if err != nil && converts && m.acquire == acquireShare && (unheard || errors.Is(err, redis.Nil)) {
			lowered, left = true, true
			if held, err = m.goOnReading(ctx, held, lease, err); errors.Is(err, redis.Nil) {
				converts, lowered, grace = false, false, m.grace // It is one who has nothing, and waits.
			}
		}
		if err == nil {
			if m.sides != nil {
				m.sides.latest.Store(m)
			}
			m.remember(held)
			if converts {
				m.otherSide.bind(nil) // The server has bound the lock to this side's connection instead.
				if m.acquire == acquireShare {
					m.otherSide.endBy(time.Now()) // Others may read.
				}
			}
			return nil
		}
		if m.locks.chosen() == theFallback {
			return m.fallbackLock(ctx, value, time.Until(deadline))
		}
		kept := wait >= time.Millisecond && grace > 0 // a place was asked for
		left = left || held.fence != 0 || !answered(err) || kept && (errors.Is(err, redis.Nil) || passes(err))
		again := time.Duration(0)
		switch {
		case ctx.Err() != nil:
			err = fmt.Errorf("%w: %w", ErrFailed, ctx.Err())
			patience = 0
		case errors.Is(err, redis.Nil):
			if time.Since(began) < min(wait, m.locks.waiters.slice, pause) {
				again = pause // It has not waited: a guard grants nothing to a token that has the locks.
			}
			err = taken()
		case isTaken(err):
			again = m.oldClientsPause(ctx)
			err = taken()
		case says(err, "PARTIAL") && left:
			// Some of what was granted before, unheard, has ended since. Otherwise the token has a lock from elsewhere.
			m.giveBack(ctx, value)
			again = pause
			err = &RedisError{Err: err}
		case says(err, "CANCELLED"):
			err = fmt.Errorf("%w: %w", ErrCancelled, &RedisError{Err: err})
			patience = 0
		case errors.Is(err, errNoServer) || answered(err) && !passes(err):
			err = m.lacking(ctx, &RedisError{Err: err})
			patience = 0
		default:
			again = pause
			err = &RedisError{Err: err}
		}
		if patience == 0 || time.Until(deadline)-again < time.Millisecond {
			if left && (!converts || lowered) {
				m.giveBack(ctx, value)
			}
			return err
		}
		sleep(ctx, again)
	}
}

// shortestLease is the shortest time for which a Lock may say that it is held.
const shortestLease = time.Millisecond

// wrong returns an error if this mutex can never be held, whatever the server says.
func (m *Mutex) wrong() error {
	if m.unlockable != nil {
		return m.unlockable
	}
	if m.surely(m.expiry) < shortestLease {
		return fmt.Errorf("redislock: the expiry (WithExpiry, or atMost of RunOnce) is too short: the drift (WithDriftFactor)"+
			" and 2ms leave nothing of %v", m.expiry)
	}
	return nil
}

// ask sends the acquire once, waiting in the server for at most wait. If it waits in vain, the
// server keeps its place for grace.
//
// The lease begins at the grant, of which we know only that it was not before the command was sent. For a wait of up to a tenth
// of the expiry we count from there. After a longer one a renewal begins a lease whose age is known.
func (m *Mutex) ask(ctx context.Context, value string, wait, grace time.Duration) (hold, error) {
	held := hold{value: value, sent: time.Now()}
	request := m.request(value)
	var bound driver.Bound
	var err error
	if wait < time.Millisecond && m.linger == nil {
		reply := m.locks.send(ctx, request)
		held.again = reply.Sent > 1
		held.fence, err = numberIn(reply)
	} else {
		held.fence, bound, err = m.locks.waiters.ask(ctx, wait, grace, request)
	}
	if err == nil && time.Since(held.sent) > m.expiry/10 {
		held.sent = time.Now()
		var renewed bool
		renewed, _, err = m.ownerAsks(ctx, "LOCK.RENEW", value, m.expiry.Milliseconds())
		if err == nil && !renewed {
			err = redis.Nil
		}
	}
	if err == nil {
		err = m.inTime(held)
	}
	switch {
	case err == nil:
		m.bind(bound)
	case bound != nil:
		bound.Release()
	}
	return held, err
}

// errLate is a null of our own: the lease was over when its grant was heard. The server may still have the hold, or another holder.
var errLate = fmt.Errorf("redislock: the lease was over when its grant was heard: %w", redis.Nil)

// inTime returns an error if the lease of a grant is over already.
func (m *Mutex) inTime(held hold) error {
	if !time.Now().Before(m.untilFrom(held.sent)) {
		return errLate
	}
	return nil
}

// request is the acquire of this mutex, without the words for the way to wait.
func (m *Mutex) request(value string) driver.Command {
	r := about(m.acquire, m.names[0], value, m.expiry.Milliseconds())
	r.Binds = m.linger != nil
	if m.acquire == acquireSeveral {
		r.Args, r.Key = []any{m.acquire, len(m.names)}, 2
		for _, name := range m.names {
			r.Args = append(r.Args, name)
		}
		r.Args = append(r.Args, value, m.expiry.Milliseconds(), "MODES")
		for i := range m.names {
			mode := "EXCLUSIVE"
			if i >= len(m.names)-m.shared {
				mode = "SHARED"
			}
			r.Args = append(r.Args, mode)
		}
	}
	if m.limit > 0 {
		r.Args = append(r.Args, "LIMIT", m.limit)
	}
	if m.linger != nil {
		r.Args = append(r.Args, "LINGER", m.linger.Milliseconds())
	}
	return r
}

// about is a command about one key. It may be sent again.
func about(command, key string, args ...any) driver.Command {
	return driver.Command{Args: append([]any{command, key}, args...), Key: 1, Again: true}
}

// send sends a command that does not wait over the user's client.
func (r *RedisLock) send(ctx context.Context, command driver.Command) driver.Reply {
	return r.driver.Do(ctx, command)[0]
}

// giveBack releases what may have been granted without our knowing, or gives up our place in the
// queue. If it cannot, the lease or the grace ends it.
func (m *Mutex) giveBack(ctx context.Context, value string) {
	if m.holds(value) {
		m.endBy(time.Now())
	}
	for _, name := range m.names {
		if m.giveBackOne(context.WithoutCancel(ctx), name, value) != nil {
			return
		}
	}
}

func (m *Mutex) giveBackOne(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, margin)
	defer cancel()
	release := about("LOCK.RELEASE", name, value)
	_, _, err := m.locks.waiters.do(ctx, 0, release)
	if err != nil && !answered(err) && ctx.Err() == nil {
		// What ended our wait may have ended this connection, too.
		_, _, err = m.locks.waiters.do(ctx, 0, release)
	}
	return err
}

// oldClientsPause is the time after which to ask again for a key that an old client holds as a string, which has no queue.
func (m *Mutex) oldClientsPause(ctx context.Context) time.Duration {
	if len(m.names) > 1 {
		return pause
	}
	left, err := numberIn(m.locks.send(ctx, about("PTTL", m.names[0])))
	if err != nil || left <= 0 {
		return pause // Also where the user has no right to PTTL.
	}
	return min(time.Duration(left+1)*time.Millisecond, pause)
}

// isTaken tells whether somebody else has the key: another token, or an old client by a value of another type.
func isTaken(err error) bool {
	return errors.Is(err, redis.Nil) || says(err, "WRONGTYPE")
}

// answered tells whether err is a reply of the server, and not the lack of one.
func answered(err error) bool {
	return replyIn(err) != nil
}

// replyIn is the server's reply in an error, or nil.
func replyIn(err error) error {
	var reply interface {
		error
		RedisError()
	}
	if !errors.As(err, &reply) {
		return nil
	}
	return reply
}

// says tells whether err is a reply of the server that begins with these words.
func says(err error, words string) bool {
	reply := replyIn(err)
	return reply != nil && strings.HasPrefix(strings.TrimPrefix(reply.Error(), "ERR "), words)
}

// passes tells whether the server said that it, or another one, will do the same command later.
func passes(err error) bool {
	for _, code := range []string{"UNBLOCKED", "TRYAGAIN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS"} {
		if says(err, code) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
