//go:build go1.25

package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

func TestAnAcquireAsksUntilTheServerHasDecided(t *testing.T) {
	const asks, renews = "LOCK.ACQUIRE", "LOCK.RENEW"
	const unknown = "ERR Command is not available: 'LOCK.ACQUIRE'"
	for what, test := range map[string]struct {
		wait    time.Duration
		answers []answer
		said    string
		errs    []error // none: it is granted
	}{
		"taken":            {0, []answer{{asks, null, 0}}, "LOCK.ACQUIRE@0", []error{&ErrTaken{}}},
		"an old client's":  {0, []answer{{asks, refusal("WRONGTYPE a string"), 0}}, "LOCK.ACQUIRE@0", []error{&ErrTaken{}}},
		"not now":          {0, []answer{{asks, refusal("BUSY"), 0}}, "LOCK.ACQUIRE@0", []error{driver.Error("BUSY")}},
		"a lost answer":    {0, []answer{{asks, broken, 0}}, "LOCK.ACQUIRE@0 LOCK.ACQUIRE@50", nil},
		"two lost answers": {0, []answer{{asks, broken, 0}, {asks, broken, 0}}, "LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.RELEASE@50", []error{io.EOF}},

		"a right":     {time.Minute, []answer{{asks, refusal("NOPERM no right"), 0}}, "LOCK.ACQUIRE@0", []error{driver.Error("NOPERM no right")}},
		"a cycle":     {time.Minute, []answer{{asks, refusal("DEADLOCK"), 0}}, "LOCK.ACQUIRE@0", []error{driver.Error("DEADLOCK")}},
		"a long ttl":  {time.Minute, []answer{{asks, refusal("ERR ttl must not be above lock.max-ttl"), 0}}, "LOCK.ACQUIRE@0", []error{ErrExpiry}},
		"an operator": {time.Minute, []answer{{asks, refusal("CANCELLED"), 0}}, "LOCK.ACQUIRE@0", []error{ErrCancelled, driver.Error("CANCELLED")}},
		"no module":   {time.Minute, []answer{{asks, refusal(unknown), 0}}, "LOCK.ACQUIRE@0", []error{ErrModuleMissing, driver.Error(unknown)}},
		"what passes": {time.Second, []answer{{asks, refusal("BUSY"), 0}, {asks, refusal("UNBLOCKED"), 0}},
			"LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.ACQUIRE@100", nil},
		"what does not": {100 * time.Millisecond, []answer{{asks, refusal("READONLY"), 0}, {asks, refusal("READONLY"), 0}},
			"LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.RELEASE@50", []error{driver.Error("READONLY")}},
		"a guard answers at once": {100 * time.Millisecond, []answer{{asks, null, 0}, {asks, null, 0}},
			"LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.RELEASE@50", []error{&ErrTaken{}}},
		"slices": {time.Minute, []answer{{asks, null, 29 * time.Second}, {asks, null, 29 * time.Second}},
			"LOCK.ACQUIRE@0 LOCK.ACQUIRE@29000 LOCK.ACQUIRE@58000", nil},

		"what was granted in part is given back": {time.Second, []answer{{asks, broken, 0}, {asks, refusal("PARTIAL"), 0}},
			"LOCK.ACQUIRE@0 LOCK.ACQUIRE@50 LOCK.RELEASE@50 LOCK.ACQUIRE@100", nil},
		"but not what the token has from elsewhere": {0, []answer{{asks, refusal("PARTIAL"), 0}}, "LOCK.ACQUIRE@0", []error{driver.Error("PARTIAL")}},

		"a late grant is renewed": {time.Minute, []answer{{asks, granted, 4 * time.Second}}, "LOCK.ACQUIRE@0 LOCK.RENEW@4000", nil},
		"or lost": {time.Minute, []answer{{asks, granted, 4 * time.Second}, {renews, driver.Reply{Value: int64(0)}, 0}},
			"LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.ACQUIRE@4000", nil},
		"or under a guard": {time.Minute, []answer{{asks, granted, 4 * time.Second}, {renews, refusal("TRYAGAIN"), 0}},
			"LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.ACQUIRE@4050", nil},
		"or without the right": {time.Minute, []answer{{asks, granted, 4 * time.Second}, {renews, refusal("NOPERM"), 0}},
			"LOCK.ACQUIRE@0 LOCK.RENEW@4000 LOCK.RELEASE@4000", []error{driver.Error("NOPERM")}},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			lock.Wait = test.wait
			f.plan(test.answers...)
			hold, err := lock.Acquire(ctx)
			expect(t, what, f.said(), test.said)
			expect(t, what, err == nil, test.errs == nil)
			is(t, err, test.errs...)
			expect(t, what+": connections", f.connections(), 0)
			if hold != nil {
				expect(t, what+": its lease", time.Until(hold.Until()), 29_698*time.Millisecond)
			}
		})
	}
}

func TestAContextThatEndsKeepsItsCause(t *testing.T) {
	trouble := errors.New("the job was withdrawn")
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		f.plan(answer{"LOCK.ACQUIRE", null, time.Hour})
		within, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { cancel(trouble) })
		_, err := lock.Acquire(within)
		is(t, err, ErrFailed, context.Canceled, trouble)
		_, err = lock.TryAcquire(within)
		is(t, err, ErrFailed, trouble)
		within, stop := context.WithTimeout(ctx, 0)
		defer stop()
		_, err = lock.Acquire(within)
		is(t, err, ErrFailed, context.DeadlineExceeded)
		expect(t, "its place is given up, and one that had ended before asks nothing", f.said(), "LOCK.ACQUIRE@0 LOCK.RELEASE@1000")
	})
}

func TestAGrantThatIsHeardAfterItsLeaseIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		lock.Expiry = 900 * time.Millisecond
		f.plan(answer{"LOCK.ACQUIRE", granted, 200 * time.Millisecond}, answer{"LOCK.RENEW", driver.Reply{Value: int64(1)}, 900 * time.Millisecond})
		_, err := lock.TryAcquire(ctx)
		is(t, err, &ErrTaken{})
		expect(t, "it is given back", f.count("LOCK.RELEASE"), 1)
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
			func(l *Lock) { l.Token = func() (string, error) { return "", errEnded } },
		} {
			changed := *lock
			change(&changed)
			_, err := changed.Acquire(ctx)
			expect(t, fmt.Sprint(err), err != nil, true)
		}
		expect(t, "requests", f.said(), "")
		lock.Expiry = 4 * time.Millisecond
		expect(t, "the shortest", lock.wrong(), nil)
	})
}
