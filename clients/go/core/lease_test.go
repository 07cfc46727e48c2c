//go:build go1.25

package core

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

func lingering(lock *Lock) *Lock {
	lock.Expiry, lock.Linger = 20*time.Second, time.Second
	return lock
}

func TestALeaseCountsFromTheSendingLessTheDrift(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		f.plan(answer{"LOCK.ACQUIRE", driver.Reply{Value: int64(7)}, 500 * time.Millisecond})
		sent := time.Now()
		hold := acquired(t, lock)
		expect(t, "the lease", hold.Until().Sub(sent), 29_698*time.Millisecond)
		within, cancel := hold.Context(ctx)
		defer cancel()
		expect(t, "its end", ends(within), 29_198)
		is(t, context.Cause(within), ErrNotHeld)
		done(t, false)(hold.Renew(ctx)) // A lease that is over stays lost, also when the server has it.
		done(t, false)(hold.Check(ctx))
		lock.Drift = 0.05
		expect(t, "a larger drift", lock.surely(100*time.Second), 94_998*time.Millisecond)
		lock.Drift = 0
		expect(t, "the least drift", lock.surely(100*time.Second), 98_998*time.Millisecond)
	})
}

// The partition: the server frees the lock a linger after it has seen the connection end, and answers nobody here.
func TestAHoldThatLingersIsOverALingerAfterTheLastSignOfLife(t *testing.T) {
	for name, happens := range map[string]func(*fake){"cut": func(f *fake) { f.cut = true }, "silent": func(f *fake) { f.silent = true }} {
		for _, kept := range []bool{false, true} {
			inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
				hold := acquired(t, lingering(lock))
				within, cancel := hold.Context(ctx)
				defer cancel()
				if kept {
					var stop context.CancelFunc
					within, stop = hold.Keep(ctx)
					defer stop()
				}
				time.Sleep(10 * time.Second)
				expect(t, name+": held as long as it lives", within.Err(), nil)
				f.set(func() { happens(f) })
				if took := ends(within); took > 988 || took < 988-340 {
					t.Fatalf("%s, kept %v: told after %d ms", name, kept, took)
				}
				is(t, context.Cause(within), ErrNotHeld)
				time.Sleep(2 * Margin) // A last try to bind it may be on its way.
				expect(t, "connections", f.connections(), 0)
			})
		}
	}
}

func TestARenewalBindsAHoldThatLingersToAnotherConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lingering(lock))
		// A connection that is silent leaves time for another one, and keeps no caller longer than its context.
		f.plan(answer{"PING", broken, time.Hour})
		time.Sleep(400 * time.Millisecond)
		short, end := context.WithTimeout(ctx, 50*time.Millisecond)
		defer end()
		begun := time.Now()
		done(t, false, context.DeadlineExceeded)(hold.Renew(short))
		expect(t, "the time", time.Since(begun), 50*time.Millisecond)
		done(t, true)(hold.Renew(ctx))
		// The end of a caller's context does not end the connection, and the answer counts.
		f.plan(answer{"LOCK.RENEW", driver.Reply{Value: int64(1)}, 100 * time.Millisecond}, answer{"LOCK.RENEW", broken, 0})
		within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		done(t, true)(hold.Renew(within))
		expect(t, "on the same connection", f.count("LOCK.ACQUIRE"), 2)
		done(t, true)(hold.Renew(ctx))
		expect(t, "bound again", f.count("LOCK.ACQUIRE"), 3)
		time.Sleep(10 * time.Second)
		expect(t, "it lives, on one connection", !hold.isOver() && f.connections() == 1, true)
		// Where no connection is to be had, a renewal counts for the linger.
		f.set(func() { f.unbound, f.answers = true, []answer{{"LOCK.RENEW", broken, 0}} })
		done(t, true)(hold.Renew(ctx))
		expect(t, "the lease", time.Until(hold.Until()), 988*time.Millisecond)
		f.set(func() { f.unbound = false })
		done(t, true)(hold.Renew(ctx))
		expect(t, "and bound", f.connections(), 1)
		done(t, true)(hold.Release(ctx))
		expect(t, "its connection is used again", f.connections() == 0 && f.released > 0, true)
		acquired(t, lock)
		time.Sleep(lock.Expiry)
		expect(t, "the connection ends with the lease", f.connections(), 0)
	})
}

func TestARenewalThatBindsAnotherHoldIsALoss(t *testing.T) {
	for _, c := range []struct {
		answer driver.Reply
		lost   bool
		after  string
	}{
		{driver.Reply{Value: int64(8)}, true, "ACQUIRE@0 RELEASE@0"}, // What nobody knows of is given back.
		{refusal("WRONGTYPE"), true, "ACQUIRE@0"},
		{refusal("PARTIAL"), true, "ACQUIRE@0"},
		{null, false, "ACQUIRE@0"}, // A guard says null to any acquire.
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			hold := acquired(t, lingering(lock))
			f.plan(answer{"LOCK.RENEW", broken, 0}, answer{"LOCK.ACQUIRE", c.answer, 0})
			done(t, !c.lost)(hold.Renew(ctx))
			expect(t, "it is over", hold.isOver(), c.lost)
			expect(t, "requests", f.said(), "ACQUIRE@0 RENEW@0 RENEW@0 "+c.after)
			expect(t, "connections", f.connections(), 0)
		})
	}
}

func TestAReleaseThatFailsCanBeRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lock)
		// One whose answer was lost is one, as long as nothing else can have ended the hold.
		f.set(func() { f.cut = true })
		done(t, false, io.EOF)(hold.Release(ctx))
		expect(t, "nobody works on", hold.isOver(), true)
		nothing := answer{"LOCK.RELEASE", driver.Reply{Value: int64(0)}, 0}
		f.set(func() { f.cut, f.answers = false, []answer{nothing, nothing} })
		done(t, true)(hold.Release(ctx))
		time.Sleep(lock.Expiry)
		done(t, false)(hold.Release(ctx)) // Its lease is over.

		// What surely did not reach the server has done nothing.
		hold = acquired(t, lock)
		f.plan(answer{"LOCK.RELEASE", driver.Reply{Err: driver.ErrNotSent}, 0}, nothing)
		done(t, false)(hold.Release(ctx))

		hold = acquired(t, lingering(lock))
		f.plan(answer{"LOCK.RELEASE", refusal("NOPERM"), 0})
		_, _ = hold.Release(ctx)
		expect(t, "connections used again, but for that of what the server has yet", f.released, 2)
	})
}

func TestAReleaseWithoutAnAnswerGoesOnByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		lock.Token = func() (string, error) { return "mine", nil }
		unheard := func() *Hold {
			hold := acquired(t, lock)
			f.set(func() { f.cut, f.asked = true, nil })
			done(t, false, io.EOF)(hold.Release(ctx))
			return hold
		}
		for _, away := range []time.Duration{time.Second, 10 * time.Second} {
			hold := unheard()
			time.Sleep(away)
			f.set(func() { f.cut = false })
			time.Sleep(away)
			expect(t, "releases", f.count("LOCK.RELEASE"), 1)
			f.plan(answer{"LOCK.RELEASE", driver.Reply{Value: int64(0)}, 0})
			done(t, true)(hold.Release(ctx)) // As what was done has no other answer.
			time.Sleep(time.Minute)
			expect(t, "and no more", f.count("LOCK.RELEASE"), 2)
		}
		// It does not end what the same token gets afterwards.
		unheard()
		f.set(func() { f.cut = false })
		acquired(t, lock)
		time.Sleep(20 * time.Second)
		expect(t, "requests", f.count("LOCK.RELEASE"), 0)
	})
}

func TestAReleaseIsTriedAgainUntilTheLeaseIsOver(t *testing.T) {
	for _, word := range []string{"BUSY", "READONLY"} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			hold := acquired(t, lock)
			f.plan(slices.Repeat([]answer{{"LOCK.RELEASE", refusal(word), 0}}, 20)...)
			done(t, true)(hold.Release(ctx))
			hold = acquired(t, lock)
			f.plan(slices.Repeat([]answer{{"LOCK.RELEASE", refusal(word), 0}}, 1000)...)
			within, cancel := context.WithTimeoutCause(ctx, time.Second, errEnded)
			defer cancel()
			done(t, false, context.DeadlineExceeded, errEnded)(hold.Release(within))
			done(t, false, driver.Error(word))(hold.Release(ctx))
			expect(t, "until its end", time.Since(hold.Until()).Round(time.Second), 30*time.Second)
		})
	}
}

func TestExecIsSentOnceAndSaysWhatTheServerLacks(t *testing.T) {
	unknown := refusal("ERR unknown command 'LOCK.EXEC'")
	for _, c := range []struct {
		answers []answer
		want    error
	}{
		{[]answer{{execGuarded, broken, 0}}, io.EOF},
		{[]answer{{execGuarded, unknown, 0}}, ErrUnsupported}, // It knows LOCK.INFO.
		{[]answer{{execGuarded, unknown, 0}, {"LOCK.INFO", refusal("ERR Command is not available: 'LOCK.INFO'"), 0}}, ErrModuleMissing},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			f.plan(c.answers...)
			_, err := acquired(t, lock).Exec(ctx, "INCR", "b")
			is(t, err, c.want)
			expect(t, "requests", f.count(execGuarded), 1)
		})
	}
}

func TestARenewalThatIsOnItsWayComesBeforeAReleaseThatLeavesSomething(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lock)
		f.plan(answer{"LOCK.RENEW", driver.Reply{Value: int64(1)}, 300 * time.Millisecond})
		go hold.Renew(ctx)
		synctest.Wait()
		lock.AtLeast = time.Second
		_, _ = hold.Release(ctx)
		lock.AtLeast = 0
		hold = acquired(t, lingering(lock))
		f.plan(answer{"PING", broken, time.Hour})
		time.Sleep(400 * time.Millisecond)
		_, _ = hold.Release(ctx) // Any other one waits for nothing.
		expect(t, "the order", f.said(), "ACQUIRE@0 RENEW@0 RELEASE@300 ACQUIRE@300 PING@633 RELEASE@700")
		hold = acquired(t, lock)
		f.plan(answer{"PING", granted, 100 * time.Millisecond})
		time.Sleep(400 * time.Millisecond)
		lock.AtLeast = time.Second
		_, _ = hold.Release(ctx)
		expect(t, "connections used again: the first wait's, and this one, whose end would end what AtLeast leaves", f.released, 2)
	})
}
