package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

const (
	// LongestSlice is the longest time that one command waits: what a dead connection costs.
	LongestSlice = 30 * time.Second
	// Margin is how much later than the server a wait ends here, when the server is silent, and how long an answer may take that
	// the server gives at once.
	Margin = time.Second
	// pause is the least time between two questions. The server cannot make one wait for a key that an old client holds, where it has
	// an error that passes, and under a guard for a token that has the locks.
	pause = 50 * time.Millisecond
	// outrunFor is how long a request may be on its way that has no answer.
	outrunFor = 2 * time.Minute
	// LeastDrift is by which part of a lease this machine's clock and the server's may differ.
	LeastDrift = 0.01
)

// The ways to ask for a lock.
const (
	AcquireExclusive = "LOCK.ACQUIRE"
	AcquireWriter    = "RWLOCK.WLOCK"
	AcquireShare     = "RWLOCK.RLOCK"
	AcquireSeveral   = "LOCK.MACQUIRE"
)

// A Client makes locks on one server, one primary with its replicas, or one cluster. It is safe for concurrent use.
type Client struct {
	Driver   driver.Driver
	Fallback bool     // locks without the module are allowed
	Observer Observer // is told of waits and holds; nil: nobody is

	falling  atomic.Pointer[bool] // whether locks are those of the fallback; nil: nobody knows yet
	releases sync.Map             // by claim, of holds whose release goes on by itself
}

// An Observer is told of every wait and every hold, as for traces and metrics. It is safe for concurrent use.
type Observer interface {
	// Waits is called when an acquire begins. It returns the context for what the acquire does, and what is to be called with its
	// result.
	Waits(ctx context.Context, names []string) (context.Context, func(err error))
	// Holds is called at a grant. It returns what is to be called when the hold is over: lost tells whether nobody has released it.
	Holds(ctx context.Context, names []string, fence int64) func(lost bool)
}

// A Lock says what is asked for, and how. Do not change it while it is used.
type Lock struct {
	Client  *Client
	Names   []string // the keys; more than one only with AcquireSeveral
	Shared  int      // how many of several names are shared, from the end
	Command string   // one of the ways to ask
	Limit   int      // the permits of a semaphore; 0: it is none. The server refuses less
	Expiry  time.Duration
	Wait    time.Duration // how long Acquire waits
	Grace   time.Duration // how long a place in the queue outlives its connection; 0: it does not
	Linger  time.Duration // how long a hold outlives its connection; 0: it does not depend on one
	AtLeast time.Duration // how long after its grant the server keeps a hold that is released
	Drift   float64
	Token   func() (string, error)   // makes the token of each acquire
	Live    func(token string) *Hold // the live hold of a token, in either mode, which a new one takes the place of; nil: none has one

	result string // of LOCK.ONCE: the key of the result
	early  int64  // of LOCK.ONCE: a result that lives for so many ms, or fewer, comes with the hold
}

// Lock returns an exclusive lock with the defaults.
func (c *Client) Lock(name string) *Lock {
	return &Lock{
		Client: c, Names: []string{name}, Command: AcquireExclusive, Expiry: 8 * time.Second, Wait: 4600 * time.Millisecond,
		Grace: 5 * time.Second, Drift: LeastDrift, Token: NewToken, Live: func(string) *Hold { return nil },
	}
}

// NewToken returns 16 random bytes in base64.
func NewToken() (string, error) {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	return base64.StdEncoding.EncodeToString(b), err
}

// Acquire takes the lock. It waits in the server's queue for Wait or until ctx ends, whichever is first. It returns an [ErrTaken] if
// others hold the lock, and an [ErrFailed] if ctx has ended. A reader that does not become the writer goes on reading.
func (l *Lock) Acquire(ctx context.Context) (*Hold, error) { return l.acquire(ctx, l.Wait) }

// TryAcquire takes the lock if it is available at once: nobody holds it and nobody waits for it.
func (l *Lock) TryAcquire(ctx context.Context) (*Hold, error) { return l.acquire(ctx, 0) }

// An attempt is one acquire with all its requests, and the hold that it becomes. All have one token, so that a hold whose reply was
// lost is had by asking again, and a place in the queue is kept.
type attempt struct {
	*Hold
	wait     time.Duration
	from     *Hold // the hold that the token has already; nil: none
	converts bool  // that hold is of the other mode
	left     bool  // the server may have a hold or a place of ours that only we would end
	outrun   bool  // the last request that was sent has no answer: the server may execute it after the next one
	broken   bool  // a connection has broken
}

// acquire is Acquire with a time to wait.
func (l *Lock) acquire(ctx context.Context, wait time.Duration) (_ *Hold, err error) {
	switch {
	case l.surely(l.span()) < time.Millisecond: // for which an acquire may say that the lock is held
		return nil, fmt.Errorf("redislock: the expiry (WithExpiry, atMost of RunOnce, or WithTTL of Once) or the linger (WithLinger) is too short:"+
			" the drift (WithDriftFactor) and 2ms leave nothing of %v", max(l.span(), 0))
	case slices.Contains(l.Names, ""):
		return nil, errors.New("redislock: a lock has at least one name, and none that is empty")
	}
	token, err := l.Token()
	if err != nil {
		return nil, err
	}
	if l.Client.Observer != nil {
		within, done := l.Client.Observer.Waits(ctx, l.Names)
		ctx = within
		defer func() { done(err) }()
	}
	l.Client.releases.Delete(claim{l.Names[0], token})
	a := &attempt{Hold: l.Adopt(token), from: l.Live(token)}
	if from := a.from; from != nil && from.lock.Command != l.Command {
		a.converts = true
		from.modes.RLock()
		defer from.modes.RUnlock()
	}
	for deadline := time.Now().Add(wait); ; {
		began := time.Now()
		a.wait = deadline.Sub(began)
		reply := a.ask(ctx)
		if a.fence == 0 && a.from != nil && l.Command == AcquireShare {
			reply = a.goOnReading(ctx, reply)
		}
		switch {
		case a.fence != 0:
			if a.from != nil {
				a.from.finish(false)
			}
			a.begin(ctx)
			return a.Hold, nil
		case a.result != nil: // It makes a hold unnecessary.
			a.giveUp(ctx)
			return a.Hold, nil
		}
		again, err := a.judge(ctx, reply)
		rest := max(pause-time.Since(began), 0) // nothing if it has waited
		if !again || wait > 0 && time.Until(deadline)-rest < time.Millisecond {
			a.giveUp(ctx)
			return nil, err
		}
		sleep(ctx, rest)
	}
}

// judge tells whether to ask again, and what the error is if there is no time for that.
func (a *attempt) judge(ctx context.Context, reply driver.Reply) (again bool, err error) {
	class := ClassOf(reply)
	again = a.wait >= time.Millisecond
	kept := again && a.keeps() // a place was asked for
	a.outrun = class == Unheard && (a.outrun || !notSent(reply.Err))
	a.left = a.left || a.outrun || kept && class != Final && class != Unheard
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("%w: %w", ErrFailed, ended(ctx))
	case isTaken(reply):
		return again, &ErrTaken{Nodes: []int{0}}
	case says(reply.Err, "PARTIAL") && a.left && a.from == nil:
		// Some of what was granted before, unheard, has ended since. Otherwise the token has a lock from elsewhere.
		a.giveBack(ctx)
		return true, reply.Err
	case says(reply.Err, "CANCELLED"):
		return false, fmt.Errorf("%w: %w", ErrCancelled, reply.Err)
	case class == Unheard && !a.broken && !errors.Is(reply.Err, context.DeadlineExceeded):
		a.broken = true // One that does not wait asks once more, too.
		return true, reply.Err
	}
	return again && class != Final, reply.Err
}

// keeps tells whether a wait has a place that outlives its connection. That of a conversion has none: a release that gives it up would end
// the hold that the token has.
func (a *attempt) keeps() bool { return a.lock.Grace > 0 && !a.converts }

// ask sends the acquire once, waiting in the server as long as there is time and a slice. If it waits in vain, the server keeps its
// place for the grace. There is a hold if there is a fence.
//
// The lease begins at the grant, of which we know only that it was not before the command was sent. For a short wait we count from
// there. After a longer one a renewal begins a lease whose age is known.
func (a *attempt) ask(ctx context.Context) driver.Reply {
	if ctx.Err() != nil {
		return driver.Reply{Err: driver.ErrNotSent}
	}
	client, command, wait := a.lock.Client, a.lock.request(a.token), time.Duration(0)
	falls, err := client.falls(ctx, a.lock.Names[0])
	if err != nil || falls && a.lock.AtLeast > 0 {
		return driver.Reply{Err: cmp.Or(err, notInFallback("atLeast"))}
	}
	if a.wait >= time.Millisecond && !falls {
		wait = min(a.wait, LongestSlice)
		if deadline, ok := ctx.Deadline(); ok {
			// A little less, so that the server's answer comes before the connection is closed.
			left := time.Until(deadline)
			wait = min(wait, left-min(left/10, 20*time.Millisecond))
		}
		wait = max(wait, time.Millisecond) // BLOCK 0 would be for ever
		command.Args = append(command.Args, "BLOCK", wait.Milliseconds())
		if a.keeps() {
			command.Args = append(command.Args, "KEEP", max(a.lock.Grace.Milliseconds(), 1))
		}
	}
	within, cancel := context.WithTimeout(ctx, wait+Margin)
	defer cancel()
	over, conn := sender(client.Driver), driver.Conn(nil)
	if wait > 0 || a.lock.Linger != 0 {
		if conn, err = client.Driver.Open(within, a.lock.Names[0]); err != nil {
			return driver.Reply{Err: &RedisError{Err: err}}
		}
		over = conn
	}
	a.sent = time.Now()
	a.known = a.sent
	reply := client.send(within, over, command)[0]
	if a.lock.Command == acquireOnce { // No other reply that is a text is a result.
		a.result, reply = resultIn(reply)
	}
	if a.fence = number(reply); a.fence != 0 && time.Since(a.sent) > a.lock.span()/10 {
		a.left = true // Whatever becomes of the renewal.
		if renewed := a.renewAnew(ctx, over); number(renewed) == 0 || a.over() {
			a.fence, reply = 0, driver.Reply{Err: renewed.Err}
		}
	}
	if a.lingers() {
		a.depend(conn)
	} else if conn != nil {
		conn.Release()
	}
	return reply
}

// renewAnew begins a lease of which only this request is known.
func (a *attempt) renewAnew(ctx context.Context, over sender) driver.Reply {
	a.sent = time.Now()
	a.known = a.sent
	within, cancel := context.WithTimeout(ctx, Margin)
	defer cancel()
	return a.send(within, over, "LOCK.RENEW", a.lock.Expiry.Milliseconds())
}

// goOnReading is for a token that the server may have made a reader without our hearing of it. Others may read, so it is no writer any
// more. To a writer's request the server never says null: the token has a share, which a guard does not grant again, or nothing. A
// share is renewed if the lease is not over; what is lost is released. A request that the server has refused, or that was not sent,
// changes nothing.
func (a *attempt) goOnReading(ctx context.Context, reply driver.Reply) driver.Reply {
	class := ClassOf(reply)
	if class != Answered && (class != Unheard || notSent(reply.Err)) {
		return reply
	}
	a.left = true
	lease := a.from.finish(false)
	if class == Unheard {
		return reply
	}
	renewed := a.renewAnew(ctx, a.lock.Client.Driver)
	switch {
	case number(renewed) == 1 && time.Now().Before(lease):
		a.fence = cmp.Or(a.from.fence, -1) // A conversion keeps it. That of an adopted hold is unknown.
	case renewed.Err == nil:
		a.giveBack(ctx)
		a.from, a.converts = nil, false // It is one who has nothing, and waits.
		return driver.Reply{}
	}
	return renewed
}

// request is the acquire of this lock, without the words for the way to wait.
func (l *Lock) request(token string) driver.Command {
	r := about(l.Command, l.Names[0], token, l.Expiry.Milliseconds())
	switch l.Command {
	case AcquireSeveral:
		r = driver.Command{Args: []any{l.Command, len(l.Names)}, Key: 2}
		for _, name := range l.Names {
			r.Args = append(r.Args, name)
		}
		r.Args = append(r.Args, token, l.Expiry.Milliseconds(), "MODES")
		r.Args = append(r.Args, slices.Repeat([]any{"EXCLUSIVE"}, len(l.Names)-l.Shared)...)
		r.Args = append(r.Args, slices.Repeat([]any{"SHARED"}, l.Shared)...)
	case acquireOnce:
		r = about(l.Command, l.Names[0], l.result, token, l.Expiry.Milliseconds(), "EARLY", l.early)
	}
	if l.Limit != 0 {
		r.Args = append(r.Args, "LIMIT", l.Limit)
	}
	if l.Linger != 0 {
		r.Args = append(r.Args, "LINGER", l.Linger.Milliseconds())
	}
	return r
}

// giveUp ends what the server may have of an attempt that has failed. The hold of a token that wanted to convert it stays, unless it
// may have been converted unheard.
func (a *attempt) giveUp(ctx context.Context) {
	if !a.left || a.converts && !a.from.isOver() {
		return
	}
	leaves := func(reply driver.Reply) bool {
		// An acquire that has no answer may be behind something, and reach the server after a release that finds nothing.
		return passes(reply) || a.outrun && reply.Err == nil && number(reply) == 0
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), Margin)
	defer cancel()
	for range 2 { // In one turn, a server may read the release before what was sent earlier over another connection.
		if !leaves(a.giveBack(within)) {
			return
		}
	}
	a.goOn(ctx, time.Now().Add(outrunFor), a.sends("LOCK.RELEASE"), leaves)
}

// giveBack releases what may have been granted without our knowing, or gives up our place in the queue.
func (a *attempt) giveBack(ctx context.Context) driver.Reply {
	if a.from != nil {
		a.from.finish(false)
	}
	// What ended our wait may have ended this connection, too: there is time for another one.
	reply, _ := a.insist(ctx, time.Now().Add(3*pause), a.sends("LOCK.RELEASE"))
	return reply
}

// about is a command about one key.
func about(command, key string, args ...any) driver.Command {
	return driver.Command{Args: append([]any{command, key}, args...), Key: 1}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
