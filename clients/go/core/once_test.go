//go:build go1.25

package core

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// shared runs a test of a result with the fake. The server has it for so many seconds more, or, with none, has no such key.
func shared(t *testing.T, left int64, test func(t *testing.T, f *fake, once *Once)) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fake, lock *Lock) {
		if left > 0 {
			f.plan(answer{"GET", driver.Reply{Value: "old"}, 0}, answer{"PTTL", driver.Reply{Value: left * 1000}, 0})
		}
		test(t, f, lock.Client.Once("a"))
	})
}

func made(context.Context) ([]byte, error) { return []byte("new"), nil }

func gets(t *testing.T, once *Once, want string) {
	t.Helper()
	got, err := once.Get(context.Background(), made)
	if err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func TestAnEarlyResultWillDoWhereTheServerRefusesTheLock(t *testing.T) {
	for _, reply := range []driver.Reply{refusal("OOM"), refusal("NOPERM"), null} {
		shared(t, 5, func(t *testing.T, f *fake, once *Once) {
			f.plan(answer{acquireOnce, reply, 0})
			gets(t, once, "old")
			expect(t, "asked once", f.said(), "GET@0 PTTL@0 LOCK.ONCE@0")
		})
	}
	shared(t, 5, func(t *testing.T, f *fake, once *Once) {
		f.plan(answer{acquireOnce, refusal("ERR unknown command 'LOCK.ONCE'"), 0})
		_, err := once.Get(context.Background(), made)
		is(t, err, ErrUnsupported) // The module is there: the server knows LOCK.INFO.
	})
	shared(t, 11, func(t *testing.T, f *fake, once *Once) {
		gets(t, once, "old")
		expect(t, "not early", f.said(), "GET@0 PTTL@0")
	})
}

func TestAReadThatFailsForNowIsAMiss(t *testing.T) {
	for _, reply := range []driver.Reply{refusal("LOADING"), {Err: io.EOF}} {
		shared(t, 0, func(t *testing.T, f *fake, once *Once) {
			f.plan(answer{"GET", reply, 0}, answer{acquireOnce, refusal("LOADING"), 0}, answer{acquireOnce, driver.Reply{Value: "there"}, 0})
			gets(t, once, "there")
			expect(t, "released", f.count("LOCK.RELEASE"), 1) // The first request has a place, or had.
		})
	}
	shared(t, 0, func(t *testing.T, f *fake, once *Once) {
		f.plan(answer{"PTTL", refusal("NOPERM"), 0})
		_, err := once.Get(context.Background(), made)
		is(t, err, driver.Error("NOPERM"))
		expect(t, "nothing else", f.count(acquireOnce), 0)
	})
}

func TestAnEarlyResultIsTheAnswerAlsoIfItsHoldIsLost(t *testing.T) {
	shared(t, 0, func(t *testing.T, f *fake, once *Once) {
		f.plan(answer{acquireOnce, driver.Reply{Value: []any{"old", int64(7)}}, 4 * time.Second},
			answer{"LOCK.RENEW", driver.Reply{Value: int64(0)}, 0})
		gets(t, once, "old")
		expect(t, "requests", f.said(), "GET@0 PTTL@0 LOCK.ONCE@0 LOCK.RENEW@4000 LOCK.RELEASE@4000")
		expect(t, "connections", f.connections(), 0)
	})
}

func TestAResultIsForItsMakerWhateverBecomesOfIt(t *testing.T) {
	for word, final := range map[string]bool{"OOM": false, "NOTHELD": false, "WRONGTYPE": false, "NOPERM": true} {
		shared(t, 0, func(t *testing.T, f *fake, once *Once) {
			f.plan(answer{execGuarded, refusal(word), 0})
			got, err := once.Get(context.Background(), made)
			expect(t, word, string(got)+" "+map[bool]string{true: "with an error"}[err != nil], "new "+map[bool]string{true: "with an error"}[final])
			expect(t, "released with it", f.said(), "GET@0 PTTL@0 LOCK.ONCE@0 LOCK.EXEC@0 LOCK.RELEASE@0")
		})
	}
	// A server that is silent in the end keeps nobody, whether there is a result or an error.
	for _, trouble := range []error{nil, errors.New("no database")} {
		shared(t, 0, func(t *testing.T, f *fake, once *Once) {
			begun := time.Now()
			got, err := once.Get(context.Background(), func(context.Context) ([]byte, error) {
				f.set(func() { f.silent = true })
				return []byte("new"), trouble
			})
			expect(t, "the result", string(got) == "new", trouble == nil)
			expect(t, "the error, and its time", errors.Is(err, trouble) && time.Since(begun) <= 2*Margin, true)
			f.set(func() { f.silent = false })
		})
	}
}

func TestXFetchDrawsWithItsMean(t *testing.T) {
	once := (&Client{}).Once("a")
	once.Keep, once.Delta, once.Beta = time.Hour, time.Second, 2
	var sum time.Duration
	const draws = 20_000
	for range draws {
		early := once.early()
		if early < 0 || early > once.Keep {
			t.Fatal(early)
		}
		sum += early
	}
	if mean := sum / draws; mean < 1900*time.Millisecond || mean > 2100*time.Millisecond { // 7 standard deviations.
		t.Fatalf("the mean is %v, not delta * beta", mean)
	}
}
