//go:build go1.25

package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

var null = driver.Reply{}

func TestAWaitOutlivesWhatPasses(t *testing.T) {
	for _, word := range []string{"BUSY", "CLUSTERDOWN", "READONLY", "UNBLOCKED"} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			lock.Wait = 15 * time.Second
			f.refuses("LOCK.ACQUIRE", word, 100)
			acquired(t, lock)
			lock.Wait = time.Second
			f.refuses("LOCK.ACQUIRE", word, 100)
			begun := time.Now()
			_, err := lock.Acquire(context.Background())
			is(t, err, driver.Error(word))
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
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		lock.Wait = time.Minute
		slice := answer{"LOCK.ACQUIRE", null, LongestSlice - time.Second}
		f.plan(slice, slice)
		hold := acquired(t, lock)
		expect(t, "slices", f.said(), "LOCK.ACQUIRE@0 LOCK.ACQUIRE@29000 LOCK.ACQUIRE@58000")
		expect(t, "the last one", fmt.Sprint(f.last), "[LOCK.ACQUIRE a "+hold.Token()+" 30000 BLOCK 2000 KEEP 5000]")
		lock.Wait, lock.Grace, lock.Limit = time.Minute, 0, 3
		acquired(t, lock)
		expect(t, "without a place", strings.HasSuffix(fmt.Sprint(f.last), " 30000 LIMIT 3 BLOCK 30000]"), true)
	})
}

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
