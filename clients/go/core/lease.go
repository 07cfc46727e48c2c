package core

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// A Hold is what one acquire has got. Its methods are safe for concurrent use.
type Hold struct {
	lock   *Lock
	token  string
	fence  int64
	result []byte          // that came with it, or in its place, if the fence is 0; nil: none
	life   context.Context // ends when the hold is over
	end    context.CancelCauseFunc

	asking chan struct{} // full while a renewal or a ping is on its way: one after the other
	conn   driver.Conn   // on which it depends, for who asks; nil: none, or it has broken
	forget func() bool   // keeps the connection when the hold is over
	modes  sync.RWMutex  // shared by acquires of the other mode, had by a renewal that asks in this one, which would undo them

	mu       sync.Mutex // of what follows
	sent     time.Time  // before the request that began the lease; zero: nobody knows when it began
	known    time.Time  // before the last request that has proved that the server had not seen the end of the connection
	overAt   time.Time  // zero: it is not over
	failure  error      // why nobody renews it any more
	timer    *time.Timer
	unheard  bool // a release may have reached the server, and its answer has not come
	observed func(lost bool)
}

// Adopt returns the hold of a token that was taken elsewhere. Its fence is 0, and its lease begins with the first renewal. It does not
// depend on a connection.
func (l *Lock) Adopt(token string) *Hold {
	h := &Hold{lock: l, token: token, asking: make(chan struct{}, 1)}
	h.life, h.end = context.WithCancelCause(context.Background())
	h.timer = time.AfterFunc(time.Hour, func() {
		if h.isOver() { // A renewal that has come just now prolongs it.
			h.finish(true)
		}
	})
	h.timer.Stop() // until its lease begins
	return h
}

// begin is called once, when the server has granted the hold, and before anybody else has it.
func (h *Hold) begin(ctx context.Context) {
	if observer := h.lock.Client.Observer; observer != nil {
		h.observed = observer.Holds(ctx, h.lock.Names, h.fence)
	}
	h.timer.Reset(time.Until(h.lease()))
	if h.lingers() {
		go h.watch()
	}
}

// depend has the hold depend on a connection, which is closed when the hold is over, so that the server ends it, too.
func (h *Hold) depend(conn driver.Conn) {
	h.conn, h.forget = conn, context.AfterFunc(h.life, conn.Close)
}

// Token returns the owner's name.
func (h *Hold) Token() string { return h.token }

// Fence returns a number larger than that of every hold granted before. Send it with every write, and let the resource refuse a number
// smaller than the largest that it has seen. In the fallback it is 0.
func (h *Hold) Fence() int64 { return max(h.fence, 0) }

// Until returns until when the lock is surely held if nobody renews it, by this machine's clock, or when the hold ended. It is zero
// for an adopted hold that nobody has renewed yet.
func (h *Hold) Until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease := h.lease(); h.overAt.IsZero() || lease.Before(h.overAt) {
		return lease
	}
	return h.overAt
}

// Done returns a channel that is closed when the hold is over: released, lost, or not renewed in time.
func (h *Hold) Done() <-chan struct{} { return h.life.Done() }

// Context returns a context that ends with the hold. Its cause is [ErrNotHeld] then.
func (h *Hold) Context(ctx context.Context) (within context.Context, cancel context.CancelFunc) {
	within, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(h.life, func() { end(context.Cause(h.life)) })
	if h.isOver() {
		h.finish(true)
		end(context.Cause(h.life)) // The other way would come a moment later.
	}
	return within, func() {
		forget()
		end(nil)
	}
}

// lease is the end of the lease. The server counts it from a moment that was not before sent, and ends a hold that lingers not before
// its linger has passed since known.
func (h *Hold) lease() time.Time {
	if h.sent.IsZero() {
		return time.Time{}
	}
	end := h.sent.Add(h.lock.surely(h.lock.Expiry))
	if cut := h.known.Add(h.lock.surely(h.lock.Linger)); h.lingers() && cut.Before(end) {
		return cut
	}
	return end
}

// lingers tells whether the hold depends on a connection. An adopted one does not.
func (h *Hold) lingers() bool { return h.lock.Linger != 0 && h.fence != 0 }

// surely is the least time that passes on this machine while a time passes on the server.
func (l *Lock) surely(while time.Duration) time.Duration {
	return while - time.Duration(float64(while)*max(l.Drift, LeastDrift)) - 2*time.Millisecond
}

// span is how long a hold lasts at most without any answer of the server.
func (l *Lock) span() time.Duration { return min(l.Expiry, cmp.Or(l.Linger, l.Expiry)) }

// isOver tells whether the hold is over, by this machine's clock.
func (h *Hold) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over()
}

func (h *Hold) over() bool {
	return !h.overAt.IsZero() || !h.sent.IsZero() && !time.Now().Before(h.lease())
}

// finish ends the hold here. lost tells whether nobody wanted that. It returns until when the lease would have lasted.
func (h *Hold) finish(lost bool) (lease time.Time) {
	h.mu.Lock()
	lease, ends := h.lease(), h.overAt.IsZero()
	if ends {
		h.overAt = time.Now()
		h.timer.Stop()
		h.end(cmp.Or(h.failure, ErrNotHeld))
	}
	h.mu.Unlock()
	if ends && h.observed != nil {
		h.observed(lost)
	}
	return lease
}

// heard notes that the server has answered a request on the hold's connection, or has renewed the hold, if that is not over. The
// requests of a hold are sent one after the other.
func (h *Hold) heard(sent time.Time, renewed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over() {
		return
	}
	h.known = sent
	if renewed {
		h.sent = sent
	}
	h.timer.Reset(time.Until(h.lease()))
}

// Release ends the hold. It returns false when the hold was over before. A release whose answer was lost and that is sent again is
// one. After an error it can be called again: the server may have the hold, for as long as the lease lasts. If the server has not
// refused it, it goes on by itself meanwhile.
func (h *Hold) Release(ctx context.Context) (released bool, err error) {
	var options []any
	if least := h.lock.AtLeast; least > 0 {
		options = []any{"ATLEAST", least.Milliseconds()}
	}
	asks := true
	select {
	case h.asking <- struct{}{}:
	default: // What is on its way may get no answer, and only AtLeast waits for it: a renewal would prolong what it leaves, and the end
		// of the connection would cut that.
		asks = options != nil && h.turn(ctx)
	}
	if asks {
		if conn := h.conn; conn != nil && h.forget() {
			defer func() {
				if err != nil {
					conn.Close() // The server may still have the hold, and an idle connection would keep it.
				} else {
					conn.Release()
				}
			}()
		}
		h.conn = nil
	}
	lease := h.finish(false) // Whether or not the answer comes. If the connection is still the hold's, this closes it.
	if asks {
		<-h.asking
	}
	h.lock.Client.releases.Delete(claim{h.lock.Names[0], h.token})
	reply, unheard := h.insist(ctx, lease, h.sends("LOCK.RELEASE", options...))
	if passes(reply) {
		h.goOn(ctx, cmp.Or(lease, time.Now().Add(h.lock.Expiry)), h.sends("LOCK.RELEASE", options...), passes)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unheard = h.unheard || unheard || passes(reply) // One that goes on may reach the server yet.
	// When the answer to the first one was lost, nothing has ended the lease meanwhile but that.
	return number(reply) != 0 || reply.Err == nil && h.unheard && time.Now().Before(lease), reply.Err
}

// A claim is what a token has or wants of a lock.
type claim struct{ name, token string }

// goOn releases in the background, while the answers say that something may be left, until a time, or until the token asks anew.
func (h *Hold) goOn(ctx context.Context, until time.Time, release sending, left func(driver.Reply) bool) {
	releases, key := &h.lock.Client.releases, claim{h.lock.Names[0], h.token}
	releases.Store(key, h)
	go func() {
		defer releases.CompareAndDelete(key, h)
		for again := pause; time.Now().Before(until); again = min(2*again, 10*time.Second) {
			time.Sleep(again)
			if newest, _ := releases.Load(key); newest != h {
				return
			}
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), Margin)
			reply := release(within)
			cancel()
			if !left(reply) {
				return
			}
		}
	}()
}

// turn waits until nothing is on its way. The caller takes from asking afterwards. false: ctx has ended before.
func (h *Hold) turn(ctx context.Context) bool {
	select {
	case h.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Check asks the server whether the lock is held now. After Until the answer is no: the server may still have a longer lease. The
// answer is old when it arrives: guard a write by Exec or by the fence.
func (h *Hold) Check(ctx context.Context) (bool, error) {
	reply, _ := h.insist(ctx, time.Now().Add(Margin), h.sends("LOCK.CHECK"))
	return number(reply) != 0 && !h.isOver(), reply.Err
}

const execGuarded = "LOCK.EXEC"

// Exec runs one command on the server, in the same step in which the server checks that the lock is held: a late owner changes nothing.
// It returns the command's own reply, nil for null, or its error. If the lock is not held the error is an [ErrNotHeld], and the command was
// not run. Of several names, the first one guards. It is never sent again.
func (h *Hold) Exec(ctx context.Context, command string, args ...any) (any, error) {
	if h.token == "" {
		return nil, ErrNotHeld
	}
	guarded := about(execGuarded, h.lock.Names[0], append([]any{h.token, command}, args...)...)
	reply := h.lock.Client.send(ctx, h.lock.Client.Driver, guarded)[0]
	lost := says(reply.Err, "NOTHELD")
	if says(reply.Err, "WRONGTYPE") { // Of the lock, or of the command.
		held, err := h.Check(ctx)
		lost = err == nil && !held
	}
	if lost {
		return nil, ErrNotHeld
	}
	if own := errors.Unwrap(reply.Err); own != nil { // without what a RedisError adds
		reply.Err = own
	}
	return reply.Value, reply.Err
}

// send sends the same command for each name. Only the holder's token succeeds with it. The reply is 1 if each has succeeded, 0 if one has
// not, or the error.
func (h *Hold) send(ctx context.Context, over sender, command string, args ...any) driver.Reply {
	commands := make([]driver.Command, len(h.lock.Names))
	for i, name := range h.lock.Names {
		commands[i] = about(command, name, append([]any{h.token}, args...)...)
	}
	all := driver.Reply{Value: int64(1)}
	for _, reply := range h.lock.Client.send(ctx, over, commands...) {
		switch {
		case reply.Err != nil && !isTaken(reply):
			return reply
		case number(reply) == 0:
			all.Value = int64(0)
		}
	}
	return all
}

// A sending sends something once.
type sending func(ctx context.Context) driver.Reply

// sends returns what sends a command by way of the driver.
func (h *Hold) sends(command string, args ...any) sending {
	return func(ctx context.Context) driver.Reply { return h.send(ctx, h.lock.Client.Driver, command, args...) }
}

// insist sends a request of the owner until the server has decided. What passes is tried again until a time, and what has no answer a
// few times. unheard tells whether one that was not answered may have reached the server.
func (h *Hold) insist(ctx context.Context, until time.Time, send sending) (reply driver.Reply, unheard bool) {
	const tries = 4
	if h.token == "" { // Nobody has it.
		return driver.Reply{Value: int64(0)}, false
	}
	until = cmp.Or(until, time.Now().Add(h.lock.surely(h.lock.Expiry)))
	for silent := 0; ; {
		within, cancel := context.WithTimeout(ctx, min(Margin, h.lock.span()/3))
		reply = send(within)
		cancel()
		again := min(tryAgain, h.lock.span()/10)
		if ClassOf(reply) == Unheard {
			unheard = unheard || !notSent(reply.Err)
			silent++
			again = min(again, pause<<silent)
		}
		if !passes(reply) || silent == tries || !time.Now().Before(until) {
			return reply, unheard
		}
		sleep(ctx, min(again, time.Until(until)))
		if ctx.Err() != nil {
			return driver.Reply{Err: &RedisError{Err: ended(ctx)}}, unheard
		}
	}
}
