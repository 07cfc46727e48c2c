package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// A Mutex is a lock on the server. Every holder has a Mutex of its own: what it remembers is one hold. Extend, Until and
// the others may be called by other goroutines than Lock.
type Mutex struct {
	locks   *RedisLock
	names   []string // one, but for a MultiMutex
	acquire string   // the command: exclusive or shared
	shared  int      // how many of the names are shared, from the end; of a MultiMutex only

	expiry        time.Duration
	tries         int
	delayFunc     DelayFunc
	driftFactor   float64
	genValueFunc  func() (string, error)
	setNXOnExtend bool
	grace         time.Duration
	limit         int            // the permits of a semaphore; 0 of a mutex
	linger        *time.Duration // nil: the hold does not depend on a connection
	otherSide     *Mutex         // the reader of this writer, or the writer of this reader; nil where there is none
	sides         *sides         // what this one and the other side share; nil where there is none
	unlockable    error          // why it was made in vain; nil: it can be locked

	renewing sync.RWMutex // renewals have a share, and a release that leaves some of the lease has it alone
	retaking sync.Mutex   // an Extend that takes the lock again has it, and an Unlock waits for that

	mu    sync.Mutex // of what follows
	value string
	until time.Time
	fence int64
	nth   int           // which hold of this Mutex it is
	bound driver.Bound  // the connection that a hold with linger depends on
	early chan struct{} // closed when until becomes earlier; nil: nobody waits for that

	released bool // by an Unlock since the last Lock
}

// Name returns the name of the mutex, which is the key of the lock. Of a [MultiMutex] it is the first one, or
// empty without any.
func (m *Mutex) Name() string { return m.names[0] }

// Value returns the token of the last lock. It is empty until a lock is had (or WithValue is used).
func (m *Mutex) Value() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value
}

// Until returns until when the lock is surely held if it is not extended, by this machine's clock. The expiry counts from the sending of
// the request, less the drift and 2ms. It is zero until a lock is had. The clock stands still while a machine sleeps (on Linux and macOS):
// after that, rely on Fence, Check or Exec.
func (m *Mutex) Until() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until
}

// Fence returns the fence of the last lock: a number larger than that of every lock given before. Send it with every
// write, and let the resource refuse a number smaller than the largest that it has seen. It is 0 until a lock is had.
func (m *Mutex) Fence() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fence
}

// Lock takes the lock. It waits in the server's queue, for the time that [WithTries] explains, and then returns an [ErrTaken].
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext takes the lock. It waits in the server's queue, for the time that [WithTries] explains or until ctx ends,
// whichever is first. A ctx that ends gives the place in the queue up at once.
func (m *Mutex) LockContext(ctx context.Context) error { return m.lock(ctx, m.patience()) }

// TryLock takes the lock if it can be had at once: nobody holds it and nobody waits for it.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext takes the lock if it can be had at once: nobody holds it and nobody waits for it.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lock(ctx, 0) }

// Unlock releases the lock. It returns false and ErrLockAlreadyExpired when it was no longer held.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock. It returns false and ErrLockAlreadyExpired when it was no longer held. A release whose reply
// was lost, and which the client sent again, is one: go-redis has MaxRetries for that.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) { return m.unlock(ctx) }

func (m *Mutex) unlock(ctx context.Context, options ...any) (bool, error) {
	value, until := m.Value(), m.giveUp()
	if m.otherSide.holds(value) {
		m.otherSide.giveUp() // The server has one hold of both.
	}
	if len(options) > 0 {
		// A renewal that the server gets later would prolong what is left. After giveUp no other one begins.
		m.renewing.Lock()
		defer m.renewing.Unlock()
	}
	released, sent, err := m.ownerAsks(ctx, "LOCK.RELEASE", value, options...)
	m.bind(nil) // Also after an error, which may be the last that is heard of this mutex.
	if err != nil {
		return false, m.lacking(ctx, err)
	}
	// The reply to the first was lost, and nothing has ended the lease meanwhile but that.
	wasHeld := sent > 1 && time.Now().Before(until)
	if !released && !wasHeld {
		return false, ErrLockAlreadyExpired
	}
	return true, nil
}

// Extend sets the expiry anew. It returns false and ErrExtendFailed when the lock was no longer held. An Unlock and another
// Lock meanwhile are not disturbed: the hold that it began with is the one that it extends.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext sets the expiry anew. It returns false and ErrExtendFailed when the lock was no longer held, or when Until has passed.
// While the server says TRYAGAIN, it asks again until then.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	held := m.held()
	renewed, err := m.renew(ctx, held)
	if err != nil || renewed {
		return renewed, err
	}
	m.retaking.Lock()
	defer m.retaking.Unlock()
	if m.setNXOnExtend && held.value != "" && !m.wasReleased() && m.isLatest() && m.wrong() == nil {
		held, err = m.askAgain(ctx, held.value)
		if err == nil && m.rememberExtended(held) {
			return true, nil
		}
		if err != nil && !isTaken(err) {
			return false, &RedisError{Err: err}
		}
		if err == nil && m.Value() != held.value {
			m.giveBack(ctx, held.value) // nobody would ever unlock it
		}
	}
	return false, fmt.Errorf("%w: %w", ErrExtendFailed, taken())
}

// renew sets the expiry of a hold anew. False: it is over, by the server's word or by this machine's clock.
func (m *Mutex) renew(ctx context.Context, held hold) (renewed bool, err error) {
	m.renewing.RLock()
	defer m.renewing.RUnlock()
	began := held.sent
	for again := true; again && !m.isOver(began); {
		renewed, held.sent, err = m.sendRenewal(ctx, held.value, began)
		if again = says(err, "TRYAGAIN"); again {
			sleep(ctx, tryAgain)
			again = ctx.Err() == nil
		}
	}
	switch {
	case m.isOver(began):
		return false, nil
	case err != nil && !errors.Is(err, &ErrTaken{}):
		return false, m.lacking(ctx, err)
	case !renewed:
		return false, nil
	}
	if m.linger != nil && held.fence != 0 {
		if kept, err := m.bindAnew(ctx, held); !kept {
			return false, err
		}
	}
	m.rememberExtended(held)
	return !m.isOver(began), nil // An Unlock may have come between.
}

// sendRenewal sends a renewal by the library. Its idle connections may have died, and it may wait for their answers for longer than the
// lease lasts. So after a margin the renewal goes over connections of the driver's own, too, until one of both has an answer, or the
// lease is over. What goes wrong there is no answer: the library knows more ways. It returns when the renewal was sent that counts.
func (m *Mutex) sendRenewal(ctx context.Context, value string, began time.Time) (renewed bool, sent time.Time, err error) {
	expiry := m.expiry.Milliseconds()
	byLibrary := make(chan error, 1)
	sent = time.Now()
	// What is sent by then must reach the server before the release of an Unlock that waits for it.
	if !m.renewing.TryRLock() {
		renewed, _, err = m.ownerAsks(ctx, "LOCK.RENEW", value, expiry)
		return renewed, sent, err
	}
	var done bool // It is set before the error is sent.
	go func() {
		defer m.renewing.RUnlock()
		var failed error
		done, _, failed = m.ownerAsks(ctx, "LOCK.RENEW", value, expiry)
		byLibrary <- failed
	}()
	for wait := margin; ; wait = pause {
		select {
		case err = <-byLibrary:
			return done, sent, err
		case <-time.After(wait):
		}
		beside := time.Now()
		renewed, err = m.renewBeside(ctx, value, expiry)
		switch {
		case err == nil:
			return renewed, beside, nil
		case errors.Is(err, errNoServer):
			err = <-byLibrary
			return done, sent, err
		case ctx.Err() != nil || m.isOver(began):
			return false, sent, &RedisError{Err: err}
		}
	}
}

// renewBeside sends a renewal over connections of the driver's own, where it has any.
func (m *Mutex) renewBeside(ctx context.Context, value string, expiry int64) (renewed bool, err error) {
	if m.locks.chosen() == theFallback {
		return false, errNoServer
	}
	renewed = true
	for _, name := range m.names {
		number, _, err := m.locks.waiters.do(ctx, 0, about("LOCK.RENEW", name, value, expiry))
		if err != nil && !isTaken(err) {
			return false, err
		}
		renewed = renewed && err == nil && number == 1
	}
	return renewed, nil
}

// Valid asks the server whether the lock is held.
//
// Deprecated: as in redsync. The answer is old when it arrives: see Until and Fence.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks the server whether the lock is held.
//
// Deprecated: as in redsync. The answer is old when it arrives: see Until and Fence.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	held, err := m.Check(ctx)
	if !says(err, "NOPERM") {
		return held, err
	}
	// A user who may only look.
	for _, name := range m.names {
		reply := m.locks.send(ctx, about("LOCK.INFO", name))
		holders, all := tokens(reply.Value)
		if !all {
			reply = m.locks.send(ctx, about("LOCK.INFO", name, "HOLDERS", math.MaxInt64))
			holders, _ = tokens(reply.Value)
		}
		if reply.Err != nil && !isTaken(reply.Err) {
			return false, m.lacking(ctx, &RedisError{Err: reply.Err})
		}
		if reply.Err != nil || !slices.Contains(holders, m.Value()) {
			return false, nil
		}
	}
	return !m.isOver(time.Now()), nil
}

// tokens reads the holders out of LOCK.INFO's reply, which is made of maps in RESP3 and of flat arrays in RESP2. It also tells whether
// they are all: unless asked for more, the module shows the first 1,000.
func tokens(info any) ([]string, bool) {
	field := func(record any, name string) any {
		switch record := record.(type) {
		case map[any]any:
			return record[name]
		case []any:
			for i := 0; i+1 < len(record); i += 2 {
				if record[i] == name {
					return record[i+1]
				}
			}
		}
		return nil
	}
	holders, _ := field(info, "holders").([]any)
	var tokens []string
	for _, holder := range holders {
		if token, ok := field(holder, "token").(string); ok {
			tokens = append(tokens, token)
		}
	}
	count, _ := field(info, "holder-count").(int64)
	return tokens, int64(len(holders)) >= count
}

// ownerAsks sends a command that only the holder's token succeeds with, for each name, and tells how often. Without a token nothing
// can be held.
func (m *Mutex) ownerAsks(ctx context.Context, command, value string, args ...any) (done bool, sent int, err error) {
	if value == "" {
		return false, 0, nil
	}
	commands := make([]driver.Command, len(m.names))
	for i, name := range m.names {
		commands[i] = about(command, name, append([]any{value}, args...)...)
	}
	done, sent = true, 1
	for _, reply := range m.locks.owned(ctx, commands...) {
		one, failed := numberIn(reply)
		done = done && one == 1
		sent = max(sent, reply.Sent)
		if failed != nil && (err == nil || isTaken(err)) {
			err = failed
		}
	}
	switch {
	case err == nil:
	case isTaken(err):
		done, err = false, taken()
	default:
		done, err = false, &RedisError{Err: err}
	}
	return done, sent, err
}

// bind keeps the connection that a hold depends on, and gives back the one before.
func (m *Mutex) bind(connection driver.Bound) {
	m.mu.Lock()
	before := m.bound
	m.bound = connection
	m.mu.Unlock()
	if before != nil && before != connection {
		before.Release()
	}
}

// bindAnew binds a hold that lingers to a connection of now, which only an acquire does. False: it was lost since its renewal. With null,
// which a guard says to any acquire, the renewal counts: the next one binds. Without an answer the server may have bound the hold to a
// connection that is closed since. Then it has the hold for the linger.
func (m *Mutex) bindAnew(ctx context.Context, held hold) (bool, error) {
	// The end of ctx would close the connection, to which the server may have bound the hold already.
	ctx = context.WithoutCancel(ctx)
	if m.sides != nil {
		if !m.sides.asking.TryLock() {
			return true, nil // The next renewal binds.
		}
		defer m.sides.asking.Unlock()
		if !m.isLatest() {
			return true, nil
		}
	}
	fence, bound, err := m.locks.waiters.do(ctx, 0, m.request(held.value))
	if unheard := err; err != nil && !answered(err) {
		m.endBy(m.after(held.sent, *m.linger))
		// A connection that was idle may have ended, too.
		fence, bound, err = m.locks.waiters.do(ctx, 0, m.request(held.value))
		if err != nil {
			return false, &RedisError{Err: unheard}
		}
	}
	if err != nil {
		return !says(err, "WRONGTYPE") && !says(err, "PARTIAL"), nil
	}
	m.mu.Lock()
	// Not if an Unlock has come first, or another Lock.
	if m.value == held.value && fence == held.fence && time.Now().Before(m.until) {
		m.bound, bound = bound, m.bound
	}
	m.mu.Unlock()
	if bound != nil {
		bound.Release()
	}
	if fence != held.fence {
		m.giveBack(ctx, held.value) // Nobody knows of this one.
	}
	return fence == held.fence, nil
}

func (m *Mutex) remember(held hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A Lock may also have what the token had before. In the fallback, which has no fences, it never does.
	if held.value != m.value || held.fence != m.fence || held.fence == 0 {
		m.nth++
	}
	m.value, m.fence, m.until, m.released = held.value, held.fence, m.untilFrom(held.sent), false
}

// giveUp ends the lease: a release is sent, which counts whether or not its reply comes. It returns until when the lease was.
func (m *Mutex) giveUp() time.Time {
	m.retaking.Lock()
	defer m.retaking.Unlock()
	m.mu.Lock()
	until := m.until
	m.released = true
	m.mu.Unlock()
	m.endBy(time.Now())
	return until
}

// wasReleased tells whether an Unlock has come after the last Lock.
func (m *Mutex) wasReleased() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.released
}

// lease is until when the lock is held, and which hold that is.
func (m *Mutex) lease() (until time.Time, nth int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until, m.nth
}

// held is what Lock or Extend remembered, for a command that is sent now.
func (m *Mutex) held() hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return hold{value: m.value, fence: m.fence, sent: time.Now()}
}

// rememberExtended remembers an extension, unless a Lock has had another hold while its reply was on its way: that one's token
// may be another, and its fence is larger in any case. Nor does it begin a lease anew that has ended meanwhile. Of two extensions that
// overtake each other the later one counts.
func (m *Mutex) rememberExtended(held hold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := held.sent.Before(m.until) && !time.Now().Before(m.until)
	if m.value != held.value || m.fence > held.fence || m.fence == held.fence && ended {
		return false
	}
	m.fence = held.fence
	if until := m.untilFrom(held.sent); until.After(m.until) {
		m.until = until
	}
	return true
}

// isOver tells whether the lease is, by this machine's clock. A mutex that was given its value has none, and counts from its own request.
func (m *Mutex) isOver(began time.Time) bool {
	until := m.Until()
	if until.IsZero() {
		until = m.untilFrom(began)
	}
	return !time.Now().Before(until)
}

// untilFrom is the end of a lease that began, on the server, no earlier than sent.
func (m *Mutex) untilFrom(sent time.Time) time.Time { return m.after(sent, m.expiry) }

// after is the earliest time at which a while of the server may be over.
func (m *Mutex) after(sent time.Time, while time.Duration) time.Time {
	return sent.Add(m.surely(while))
}

// surely is the least time that passes on this machine while a time passes on the server.
func (m *Mutex) surely(while time.Duration) time.Duration {
	return while - time.Duration(float64(while)*m.driftFactor) - 2*time.Millisecond
}
