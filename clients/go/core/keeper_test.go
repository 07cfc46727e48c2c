//go:build go1.25

package core

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

func TestTheKeeperRenewsAtAThirdOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lock)
		within, stop := hold.Keep(ctx)
		time.Sleep(35 * time.Second)
		expect(t, "its requests", f.said(), "ACQUIRE@0 RENEW@9899 RENEW@19899 RENEW@29899")
		expect(t, "it is held", within.Err(), nil)
		stop()
		is(t, context.Cause(within), context.Canceled)
		time.Sleep(time.Minute)
		expect(t, "renewals after the stop", f.count("LOCK.RENEW"), 3)
	})
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lock)
		time.Sleep(26_698 * time.Millisecond)
		_, stop := hold.Keep(ctx)
		defer stop()
		time.Sleep(10 * time.Second)
		expect(t, "of what is left of it", f.said(), "ACQUIRE@0 RENEW@27698")
	})
}

func TestWhatPassesIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		hold := acquired(t, lock)
		within, stop := hold.Keep(ctx)
		defer stop()
		for _, word := range []string{"TRYAGAIN", "BUSY", "READONLY"} {
			f.plan(slices.Repeat([]answer{{"LOCK.RENEW", refusal(word), 0}}, 60)...)
			time.Sleep(25 * time.Second)
			expect(t, word, within.Err(), nil)
		}
		// Nor is a connection that dies, or a server that is silent for a while.
		f.set(func() { f.silent = true })
		time.Sleep(18 * time.Second)
		f.set(func() { f.silent = false })
		time.Sleep(20 * time.Second)
		expect(t, "it is held", within.Err(), nil)
		f.plan(answer{"LOCK.RENEW", broken, 0})
		done(t, true)(hold.Renew(ctx)) // It is sent again.
		// What goes on for ever ends with the lease.
		stop()
		f.plan(slices.Repeat([]answer{{"LOCK.RENEW", refusal("TRYAGAIN a guard"), 0}}, 1000)...)
		begun := time.Now()
		done(t, false)(hold.Renew(ctx))
		expect(t, "the time", time.Since(begun).Round(time.Second), 30*time.Second)
	})
}

func TestALossIsToldAtOnceAndAFinalErrorWithTheLease(t *testing.T) {
	for _, c := range []struct {
		answer driver.Reply
		told   int64 // after so many ms
		says   string
	}{
		{driver.Reply{Value: int64(0)}, 9899, ""},
		{refusal("WRONGTYPE a string"), 9899, ""},
		{refusal("NOPERM no right to lock.renew"), 29_698, "NOPERM"},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			hold := acquired(t, lock)
			f.plan(answer{"LOCK.RENEW", c.answer, 0})
			within, stop := hold.Keep(ctx)
			defer stop()
			expect(t, c.says, ends(within), c.told)
			again, stop := hold.Keep(ctx)
			defer stop()
			for _, within := range []context.Context{within, again} {
				is(t, context.Cause(within), ErrNotHeld)
				expect(t, "it says why", strings.Contains(context.Cause(within).Error(), c.says), true)
			}
			expect(t, "renewals", f.count("LOCK.RENEW"), 1)
		})
	}
}
