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
	const unknown = "ERR Command is not available: 'LOCK.ACQUIRE'"
	at := func(after time.Duration, replies ...driver.Reply) (answers []answer) {
		for _, reply := range replies {
			answers = append(answers, answer{"LOCK.ACQUIRE", reply, after})
		}
		return answers
	}
	late := func(renewed driver.Reply) []answer {
		return append(at(4*time.Second, granted), answer{"LOCK.RENEW", renewed, 0})
	}
	for what, test := range map[string]struct {
		wait    time.Duration
		answers []answer
		said    string
		err     error // nil: it is granted
	}{
		"taken":                     {0, at(0, null), "ACQUIRE@0", &ErrTaken{}},
		"an old client's":           {0, at(0, refusal("WRONGTYPE a string")), "ACQUIRE@0", &ErrTaken{}},
		"not now":                   {0, at(0, refusal("BUSY")), "ACQUIRE@0", driver.Error("BUSY")},
		"a lost answer":             {0, at(0, broken), "ACQUIRE@0 ACQUIRE@50", nil},
		"two lost answers":          {0, at(0, broken, broken), "ACQUIRE@0 ACQUIRE@50 RELEASE@50", io.EOF},
		"a right":                   {time.Minute, at(0, refusal("NOPERM")), "ACQUIRE@0", driver.Error("NOPERM")},
		"a cycle":                   {time.Minute, at(0, refusal("DEADLOCK")), "ACQUIRE@0", driver.Error("DEADLOCK")},
		"a long ttl":                {time.Minute, at(0, refusal("ERR ttl must not be above lock.max-ttl")), "ACQUIRE@0", ErrExpiry},
		"an operator":               {time.Minute, at(0, refusal("CANCELLED")), "ACQUIRE@0", ErrCancelled},
		"no module":                 {time.Minute, at(0, refusal(unknown)), "ACQUIRE@0", ErrModuleMissing},
		"what passes":               {time.Second, at(0, refusal("BUSY"), refusal("UNBLOCKED")), "ACQUIRE@0 ACQUIRE@50 ACQUIRE@100", nil},
		"what does not":             {2 * pause, at(0, refusal("OOM"), refusal("BUSY")), "ACQUIRE@0 ACQUIRE@50 RELEASE@50", driver.Error("BUSY")},
		"a guard's null":            {2 * pause, at(0, null, null), "ACQUIRE@0 ACQUIRE@50 RELEASE@50", &ErrTaken{}},
		"slices":                    {time.Minute, at(29*time.Second, null, null), "ACQUIRE@0 ACQUIRE@29000 ACQUIRE@58000", nil},
		"granted in part":           {time.Second, at(0, broken, refusal("PARTIAL")), "ACQUIRE@0 ACQUIRE@50 RELEASE@50 ACQUIRE@100", nil},
		"held in part by its token": {0, at(0, refusal("PARTIAL")), "ACQUIRE@0", driver.Error("PARTIAL")},
		"late, so renewed":          {time.Minute, at(4*time.Second, granted), "ACQUIRE@0 RENEW@4000", nil},
		"late and lost":             {time.Minute, late(driver.Reply{Value: int64(0)}), "ACQUIRE@0 RENEW@4000 ACQUIRE@4000", nil},
		"late under a guard":        {time.Minute, late(refusal("TRYAGAIN")), "ACQUIRE@0 RENEW@4000 ACQUIRE@4000", nil},
		"late without the right":    {time.Minute, late(refusal("NOPERM")), "ACQUIRE@0 RENEW@4000 RELEASE@4000", driver.Error("NOPERM")},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			lock.Wait = test.wait
			f.plan(test.answers...)
			hold, err := lock.Acquire(ctx)
			expect(t, what, f.said(), test.said)
			is(t, err, test.err)
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
		_, err = lock.Acquire(within)
		is(t, err, ErrFailed, trouble)
		expect(t, "its place is given up, and one that had ended before asks nothing", f.said(), "ACQUIRE@0 RELEASE@1000")
		// A release that finds nothing may have come to the server before the acquire.
		f.plan(answer{"LOCK.ACQUIRE", null, time.Hour}, answer{"LOCK.RELEASE", driver.Reply{Value: int64(0)}, 0})
		short, end := context.WithTimeout(ctx, time.Second)
		defer end()
		_, err = lock.Acquire(short)
		is(t, err, ErrFailed)
		expect(t, "it is sent again", f.count("LOCK.RELEASE"), 3)
		// It may be behind something for longer than that: here the fourth release finds what it gets.
		nothing := answer{"LOCK.RELEASE", driver.Reply{Value: int64(0)}, 0}
		f.plan(answer{"LOCK.ACQUIRE", null, time.Hour}, nothing, nothing, nothing)
		short, end = context.WithTimeout(ctx, time.Second)
		defer end()
		_, err = lock.Acquire(short)
		is(t, err, ErrFailed)
		time.Sleep(time.Minute)
		expect(t, "and again", f.count("LOCK.RELEASE"), 3+4)
		// One that the end of the context keeps from being sent does not make it answered.
		f.plan(answer{"LOCK.ACQUIRE", broken, 10 * time.Millisecond}, nothing)
		short, end = context.WithTimeout(ctx, 30*time.Millisecond)
		defer end()
		_, err = lock.Acquire(short)
		is(t, err, ErrFailed)
		expect(t, "once more", f.count("LOCK.RELEASE"), 3+4+2)
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
			func(l *Lock) { l.Drift = 1 },
			func(l *Lock) { l.Linger = 3 * time.Millisecond },
			func(l *Lock) { l.Names = []string{""} },
			func(l *Lock) { l.Token = func() (string, error) { return "", errEnded } },
		} {
			changed := *lock
			change(&changed)
			_, err := changed.Acquire(ctx)
			expect(t, fmt.Sprint(err), err != nil, true)
		}
		expect(t, "requests", f.said(), "")
		lock.Expiry = 4 * time.Millisecond
		acquired(t, lock) // the shortest
	})
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) { // A fallback has no AtLeast. It asks again soon where there is no answer.
		lock.Client.Fallback, lock.AtLeast = true, time.Second
		f.plan(answer{"LOCK.INFO", broken, 0}, answer{"LOCK.INFO", refusal("ERR unknown command 'LOCK.INFO'"), 0})
		_, err := lock.TryAcquire(ctx)
		is(t, err, ErrModuleMissing)
		lock.AtLeast = 0
		f.plan(answer{"EVAL", broken, time.Hour}, answer{"EVAL", granted, 0})
		expect(t, "the grant", acquired(t, lock).sent.Sub(f.begun), 1050*time.Millisecond)
	})
}
