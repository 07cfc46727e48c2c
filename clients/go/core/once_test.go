//go:build go1.25

package core

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

func made(context.Context) ([]byte, error) { return []byte("new"), nil }

func TestAResultIsOldOrNewOrThere(t *testing.T) {
	const reads, asks, stores = "GET@0 PTTL@0", "GET@0 PTTL@0 ONCE@0", "GET@0 PTTL@0 ONCE@0 EXEC@0 RELEASE@0"
	old := func(seconds int64, then ...answer) []answer {
		return append([]answer{{"GET", driver.Reply{Value: "old"}, 0}, {"PTTL", driver.Reply{Value: seconds * 1000}, 0}}, then...)
	}
	there := answer{acquireOnce, driver.Reply{Value: "there"}, 0}
	for what, c := range map[string]struct {
		answers []answer
		want    string
		err     error
		said    string
	}{
		"not early":             {old(11), "old", nil, reads},
		"early, and no memory":  {old(5, answer{acquireOnce, refusal("OOM"), 0}), "old", nil, asks},
		"early, and no right":   {old(5, answer{acquireOnce, refusal("NOPERM"), 0}), "old", nil, asks},
		"early, and taken":      {old(5, answer{acquireOnce, null, 0}), "old", nil, asks},
		"early, and not known":  {old(5, answer{acquireOnce, refusal("ERR unknown command 'LOCK.ONCE'"), 0}), "", ErrUnsupported, asks + " INFO@0"},
		"no right to read":      {[]answer{{"PTTL", refusal("NOPERM"), 0}}, "", driver.Error("NOPERM"), reads},
		"not now":               {[]answer{{"GET", refusal("LOADING"), 0}, there}, "there", nil, asks},
		"no answer":             {[]answer{{"GET", broken, 0}, there}, "there", nil, asks},
		"there when asked anew": {[]answer{{acquireOnce, broken, 0}, there}, "there", nil, asks + " ONCE@50 RELEASE@50"}, // A place may be left.
		"early, and its hold is lost": {[]answer{{acquireOnce, driver.Reply{Value: []any{"old", int64(7)}}, 4 * time.Second},
			{"LOCK.RENEW", driver.Reply{Value: int64(0)}, 0}}, "old", nil, asks + " RENEW@4000 RELEASE@4000"},
		// Its maker gets it, whatever becomes of it.
		"stored":           {nil, "new", nil, stores},
		"no memory for it": {[]answer{{execGuarded, refusal("OOM"), 0}}, "new", nil, stores},
		"too late":         {[]answer{{execGuarded, refusal("NOTHELD"), 0}}, "new", nil, stores},
		"another's lock":   {[]answer{{execGuarded, refusal("WRONGTYPE"), 0}}, "new", nil, stores},
		"no right to it":   {[]answer{{execGuarded, refusal("NOPERM"), 0}}, "new", driver.Error("NOPERM"), stores},
	} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			f.plan(c.answers...)
			got, err := lock.Client.Once("a").Get(ctx, made)
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Fatalf("%s: got %q, %v", what, got, err)
			}
			expect(t, what, f.said(), c.said)
			expect(t, what+": connections", f.connections(), 0)
		})
	}
}

func TestAServerThatIsSilentInTheEndKeepsNobody(t *testing.T) {
	for _, trouble := range []error{nil, errors.New("no database")} {
		inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
			begun := time.Now()
			got, err := lock.Client.Once("a").Get(ctx, func(context.Context) ([]byte, error) {
				f.set(func() { f.silent = true })
				return []byte("new"), trouble
			})
			expect(t, "the result", string(got) == "new", trouble == nil)
			expect(t, "the error, and its time", errors.Is(err, trouble) && time.Since(begun) <= 2*Margin, true)
		})
	}
}
