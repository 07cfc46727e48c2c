package redislock

import (
	"cmp"
	"math"
	"time"
)

// An Option configures a mutex.
type Option func(*Mutex)

// WithExpiry sets how long the lock is held if it is neither extended nor unlocked. The default is 8s. Lock refuses one of 3ms or less,
// of which the drift and 2ms leave nothing: see [Mutex.Until].
func WithExpiry(expiry time.Duration) Option { return func(m *Mutex) { m.lock.Expiry = expiry } }

// WithTries and [WithRetryDelay] say together how long Lock waits: as long as that many tries with these delays between
// them would take. There are no tries: the wait is in the server. WithTries(1) does not wait. The default is 32.
func WithTries(tries int) Option { return func(m *Mutex) { m.tries = tries } }

// WithRetryDelay sets the delay that [WithTries] counts with. The default is rand(50ms, 250ms), so that Lock waits for
// about 4.6s.
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// A DelayFunc tells the time between a try and the one before it. It is called with 1, 2, … when Lock begins.
type DelayFunc func(tries int) time.Duration

// WithRetryDelayFunc sets the delays that [WithTries] counts with.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return func(m *Mutex) { m.delayFunc = delayFunc }
}

// WithSetNXOnExtend has Extend take the lock again when it was lost and nobody has it, but not
// after an Unlock. The fence is then a new one: what was done without the lock may have been
// overtaken.
func WithSetNXOnExtend() Option { return func(m *Mutex) { m.setNXOnExtend = true } }

// WithGrace sets for how long the server keeps a waiter's place in the queue while nobody listens
// for it: between two slices of a wait, and after a lost connection until Lock has asked again. The
// default is 5s. It is from 1ms to 1h; 0 keeps no place.
//
// It must outlive a reconnect, and the second after which a silent connection is given up. A process
// that dies while it waits may cost the waiters behind it this time, once. A Lock that stops waiting
// gives its place up at once.
func WithGrace(grace time.Duration) Option { return func(m *Mutex) { m.lock.Grace = grace } }

// WithLinger has the server end the lock this long after its connection is lost, so that a process that dies does not hold it for
// the rest of its expiry. Without this option it does. A lock that lingers has a connection of its own until it ends, and asks for a
// sign of life on it every third of the linger. [RedisLock.Close] closes that connection, too.
//
// When there is no sign of life, Until is this long after the last one, unless an Extend or KeepAlive binds the lock to another
// connection before. A process that cannot reach the server learns by that that others may have the lock.
// A linger of 3ms or less, 0 too, is refused by Lock.
func WithLinger(linger time.Duration) Option {
	return func(m *Mutex) { m.lock.Linger = cmp.Or(linger, -1) }
}

// WithDriftFactor sets by which part of the expiry Until is early, for clocks that run at different speeds. The default is 0.01.
// The guard of a server counts on no less, so a smaller factor counts as 0.01.
func WithDriftFactor(factor float64) Option { return func(m *Mutex) { m.lock.Drift = factor } }

// WithGenValueFunc sets what makes the token of each Lock. It must make a different one every
// time: a Lock whose token has the lock already gets it, and one that gives up releases what its
// token has. The default is 16 random bytes in base64.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return func(m *Mutex) { m.lock.Token = genValueFunc }
}

// WithValue sets the token without a Lock, so that another mutex's lock can be extended or unlocked.
func WithValue(v string) Option { return func(m *Mutex) { m.hold.Store(m.lock.Adopt(v)) } }

// patience is the sum of the delays between the tries. Who says "for ever" by a huge number of them is not made to wait for
// the adding up: beyond a while it goes on as it began.
func (m *Mutex) patience() time.Duration {
	const counted = 256
	delays := max(m.tries-1, 0)
	var sum float64
	for i := 1; i <= min(delays, counted); i++ {
		sum += float64(max(m.delayFunc(i), 0))
	}
	return time.Duration(min(sum*max(1, float64(delays)/counted), math.MaxInt64/2))
}
