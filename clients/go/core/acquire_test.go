//go:build go1.25

package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

var null = driver.Reply{}

func TestAWaitOutlivesWhatPasses(t *testing.T) {
	for _, word := range []string{"BUSY", "LOADING", "MISCONF", "NOREPLICAS", "TRYAGAIN", "OOM", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "UNBLOCKED"} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			lock.Wait = 15 * time.Second
			for range 100 {
				f.plan(answer{"LOCK.ACQUIRE", refusal(word), 0})
			}
			acquired(t, lock)
			lock.Wait = time.Second
			for range 100 {
				f.plan(answer{"LOCK.ACQUIRE", refusal(word), 0})
			}
			begun := time.Now()
			_, err := lock.Acquire(context.Background())
			expect(t, "its last word", err != nil && strings.Contains(err.Error(), word), true)
			expect(t, "its time", time.Since(begun).Round(100*time.Millisecond), time.Second)
			before := f.count("LOCK.ACQUIRE")
			_, err = lock.TryAcquire(context.Background())
			expect(t, "one that does not wait asks once", err != nil && f.count("LOCK.ACQUIRE") == before+1, true)
		})
	}
}

func TestAFinalErrorEndsAWaitAtOnce(t *testing.T) {
	for text, want := range map[string]error{
		"NOPERM no right": nil, "NOAUTH": nil, "DEADLOCK a cycle": nil, "ERR grace": nil,
		"ERR ttl must not be above lock.max-ttl": ErrExpiry, "CANCELLED by an operator": ErrCancelled,
		"ERR Command is not available: 'LOCK.ACQUIRE'": ErrModuleMissing,
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			f.plan(answer{"LOCK.ACQUIRE", refusal(text), 0})
			_, err := lock.Acquire(context.Background())
			is(t, err, driver.Error(text))
			if want != nil {
				is(t, err, want)
			}
			expect(t, "requests", f.count("LOCK.ACQUIRE"), 1)
			expect(t, "the time", time.Since(f.begun), 0)
		})
	}
}

func TestAContextThatEndsKeepsItsCause(t *testing.T) {
	trouble := errors.New("the job was withdrawn")
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		f.plan(answer{"LOCK.ACQUIRE", null, time.Hour})
		within, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(trouble) })
		_, err := lock.Acquire(within)
		is(t, err, ErrFailed, context.Canceled, trouble)
		expect(t, "its place is given up", f.count("LOCK.RELEASE"), 1)
		_, err = lock.TryAcquire(within)
		is(t, err, ErrFailed, trouble)
		expect(t, "one that had ended before asks nothing", f.count("LOCK.ACQUIRE"), 1)
		within, stop := context.WithTimeout(context.Background(), 0)
		defer stop()
		_, err = lock.Acquire(within)
		is(t, err, ErrFailed, context.DeadlineExceeded)
	})
}

func TestOneThatDoesNotWaitAsksForNoPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		for _, reply := range []driver.Reply{null, refusal("WRONGTYPE a string")} {
			f.plan(answer{"LOCK.ACQUIRE", reply, 0})
			_, err := lock.TryAcquire(context.Background())
			is(t, err, &ErrTaken{})
		}
		expect(t, "and gives none back", f.said(), "LOCK.ACQUIRE@0 LOCK.ACQUIRE@0")
		// If its connection breaks, it asks once more.
		f.plan(answer{"LOCK.ACQUIRE", driver.Reply{Err: io.EOF}, 0})
		_, err := lock.TryAcquire(context.Background())
		expect(t, "granted", err, nil)
		f.set(func() { f.cut = true })
		_, err = lock.TryAcquire(context.Background())
		expect(t, "an error of the connection", errors.As(err, new(*RedisError)), true)
	})
}

func TestALateGrantIsRenewedBeforeTheWork(t *testing.T) {
	waited := answer{"LOCK.ACQUIRE", driver.Reply{Value: int64(7)}, 4 * time.Second}
	for what, test := range map[string]struct {
		renewal answer
		then    string
	}{
		"renewed":         {answer{"LOCK.RENEW", driver.Reply{Value: int64(1)}, 0}, "LOCK.ACQUIRE@0 LOCK.RENEW@4000"},
		"lost":            {answer{"LOCK.RENEW", driver.Reply{Value: int64(0)}, 0}, "LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.ACQUIRE@4000"},
		"under a guard":   {answer{"LOCK.RENEW", refusal("TRYAGAIN"), 0}, "LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.ACQUIRE@4050"},
		"without a right": {answer{"LOCK.RENEW", refusal("NOPERM"), 0}, "LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.RELEASE@4000"},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			lock.Wait = 10 * time.Second
			f.plan(waited, test.renewal)
			hold, err := lock.Acquire(context.Background())
			expect(t, what, f.said(), test.then)
			expect(t, what, err != nil, what == "without a right")
			expect(t, "connections", f.connections(), 0)
			if hold != nil {
				expect(t, "the lease", hold.Until().Sub(f.begun) > 33*time.Second, true)
			}
		})
	}
}

func TestAGrantThatIsHeardAfterItsLeaseIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		lock.Expiry = 900 * time.Millisecond
		f.plan(answer{"LOCK.ACQUIRE", driver.Reply{Value: int64(7)}, 200 * time.Millisecond}, answer{"LOCK.RENEW", driver.Reply{Value: int64(1)}, 900 * time.Millisecond})
		_, err := lock.TryAcquire(context.Background())
		is(t, err, &ErrTaken{})
		expect(t, "it is given back", f.count("LOCK.RELEASE"), 1)
	})
}

func TestAWaitIsCutIntoSlicesWithOneToken(t *testing.T) {
	var commands []string
	record := &recorder{fake: &fake{begun: time.Now(), fence: 7}, to: &commands}
	lock := (&Client{Driver: record, Slice: 40 * time.Millisecond}).Lock("a")
	lock.Token = func() (string, error) { return "mine", nil }
	for range 3 {
		record.answers = append(record.answers, answer{"LOCK.ACQUIRE", null, 50 * time.Millisecond})
	}
	acquired(t, lock)
	slice := "[LOCK.ACQUIRE a mine 8000 BLOCK 40 KEEP 5000]"
	expect(t, "commands", fmt.Sprint(commands), fmt.Sprint([]string{slice, slice, slice, slice}))
	for what, change := range map[string]func(){
		"[LOCK.ACQUIRE a mine 8000 BLOCK 40]":                               func() { lock.Grace = 0 },
		"[LOCK.ACQUIRE a mine 8000 LIMIT 3 LINGER 1000 BLOCK 40 KEEP 5000]": func() { lock.Limit, lock.Lingers, lock.Linger = 3, true, time.Second },
		"[LOCK.MACQUIRE 2 a b mine 8000 MODES EXCLUSIVE SHARED BLOCK": func() {
			*lock = Lock{Client: lock.Client, Names: []string{"a", "b"}, Shared: 1, Command: AcquireSeveral, Expiry: lock.Expiry, Wait: lock.Wait}
		},
	} {
		copied := *lock
		commands = nil
		change()
		a := &attempt{Lock: lock, token: "mine", wait: time.Second, grace: lock.Grace}
		a.ask(context.Background())
		expect(t, fmt.Sprint(commands), strings.HasPrefix(commands[0], what), true)
		*lock = copied
	}
}

// A recorder notes the words of the acquires.
type recorder struct {
	*fake
	to *[]string
}

func (r *recorder) Open(context.Context, string) (driver.Conn, error) {
	return &recording{r, &fakeConn{fake: r.fake}}, nil
}

type recording struct {
	*recorder
	driver.Conn
}

func (r *recording) Send(ctx context.Context, commands ...driver.Command) []driver.Reply {
	*r.to = append(*r.to, fmt.Sprint(commands[0].Args))
	return r.Conn.Send(ctx, commands...)
}

func (r *recording) Close() { r.Conn.Close() }

func TestAGuardThatAnswersAtOnceIsAskedWithPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		lock.Wait = 2 * time.Second
		for range 1000 {
			f.plan(answer{"LOCK.ACQUIRE", null, 0})
		}
		_, err := lock.Acquire(context.Background())
		is(t, err, &ErrTaken{})
		expect(t, "requests", f.count("LOCK.ACQUIRE"), 40)
	})
}

func TestWhatWasGrantedInPartIsGivenBackAndAskedForAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		f.plan(answer{"LOCK.ACQUIRE", driver.Reply{Err: io.EOF}, 0}, answer{"LOCK.ACQUIRE", refusal("PARTIAL"), 0})
		acquired(t, lock)
		expect(t, "the order", f.said(), "LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.RELEASE@50 LOCK.ACQUIRE@100")
		// What the token has from elsewhere stays.
		f.plan(answer{"LOCK.ACQUIRE", refusal("PARTIAL"), 0})
		_, err := lock.TryAcquire(context.Background())
		is(t, err, driver.Error("PARTIAL"))
		expect(t, "releases", f.count("LOCK.RELEASE"), 1)
	})
}

func TestWhatCanNeverBeHeldIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		for _, change := range []func(*Lock){
			func(l *Lock) { l.Expiry = 3 * time.Millisecond },
			func(l *Lock) { l.Expiry = -time.Second },
			func(l *Lock) { l.Drift = 1 },
			func(l *Lock) { l.Lingers = true },
			func(l *Lock) { l.Lingers, l.Linger = true, 3*time.Millisecond },
			func(l *Lock) { l.Invalid = errEnded },
		} {
			changed := *lock
			change(&changed)
			_, err := changed.Acquire(context.Background())
			expect(t, fmt.Sprint(err), err != nil, true)
		}
		expect(t, "requests", f.said(), "")
		lock.Expiry = 4 * time.Millisecond
		expect(t, "the shortest", lock.wrong(), nil)
		lock.Token = func() (string, error) { return "", errEnded }
		_, err := lock.Acquire(context.Background())
		is(t, err, errEnded)
	})
}

func TestAnObserverIsToldOfWaitsAndHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		o := &observer{}
		lock.Client.Observer = o
		hold := acquired(t, lock)
		_, _ = hold.Release(context.Background())
		_, _ = hold.Release(context.Background())
		acquired(t, lock)
		time.Sleep(time.Minute)
		f.plan(answer{"LOCK.ACQUIRE", null, 0})
		_, _ = lock.TryAcquire(context.Background())
		o.mu.Lock()
		defer o.mu.Unlock()
		expect(t, "the story", strings.Join(o.said, ", "), "waits, holds 7, <nil>, lost false, waits, holds 7, <nil>, lost true, waits, "+taken().Error())
	})
}

type observer struct {
	mu   sync.Mutex
	said []string
}

func (o *observer) note(what ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, fmt.Sprint(what...))
}

func (o *observer) Waits(ctx context.Context, _ []string) (context.Context, func(error)) {
	o.note("waits")
	return ctx, func(err error) { o.note(err) }
}

func (o *observer) Holds(_ context.Context, _ []string, fence int64) func(bool) {
	o.note("holds ", fence)
	return func(lost bool) { o.note("lost ", lost) }
}
