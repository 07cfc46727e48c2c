package redislock

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// warnings returns what counts the warnings about the fallback, from now to the end of the test.
func warnings(t *testing.T) func() int {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() int { return strings.Count(said.String(), "no redis-lock module") }
}

func TestWithoutTheModuleEveryErrorExplains(t *testing.T) {
	at, plain := started(t, "--without-module")
	said := warnings(t)
	// With the module the option changes nothing.
	must(t, admin.FlushAll(ctx).Err())
	must(t, locksTo(t, server.Addr, WithFallback()).NewMutex("a").Lock())
	expect(t, "the native type", admin.Type(ctx, "a").Val(), "redislock")
	locks := locksTo(t, at.Addr)
	known := func() *Mutex { return locks.NewMutex("a", WithValue("mine")) }
	job := func(context.Context, *Mutex) error { panic("it shall not run") }
	for what, ask := range map[string]func() error{
		"linger":  locks.NewMutex("a", WithLinger(time.Second)).Lock,
		"RunOnce": func() error { _, err := locks.RunOnce(ctx, "a", time.Minute, time.Second, job); return err },
		"Unlock":  func() error { _, err := known().Unlock(); return err },
		"Extend":  func() error { _, err := known().Extend(); return err },
		"Check":   func() error { _, err := known().Check(ctx); return err },
		"Exec":    func() error { return known().Exec(ctx, "SET", "b", 1).Err() },
	} {
		t.Run(what, func(t *testing.T) {
			says(t, ask(), ErrModuleMissing, "loadmodule /path/libredis_lock.so", "restart the server", "WithFallback", "no fence", "unknown command")
		})
	}
	expect(t, "keys and warnings", plain.DBSize(ctx).Val()+int64(said()), 0)
}

func TestTheFallbackHoldsExtendsAndReleases(t *testing.T) {
	at, plain := started(t, "--without-module")
	said := warnings(t)
	proxy := newProxy(t, at.Addr)
	// These rights will do.
	rights := []any{"+set", "+eval", "+get", "+type", "+pexpire", "+del", "+ping"}
	locks := userOf(t, at, dialing{addrs: []string{proxy.addr}}, rights, WithFallback())
	mutex := locks.NewMutex("jobs:a", minute, WithSetNXOnExtend())
	must(t, mutex.Lock())
	expect(t, "its string", plain.Get(ctx, "jobs:a").Val(), mutex.Value())
	released(t)(mutex.Check(ctx))
	must(t, plain.Del(ctx, "jobs:a").Err())
	released(t)(mutex.Extend()) // It is taken again.
	proxy.loses("EVAL")
	released(t)(mutex.Unlock())
	expect(t, "a lost reply, and no hold", proxy.hasLost() && plain.Exists(ctx, "jobs:a").Val() == 0, true)
	// A hold whose reply was lost is had by its token.
	proxy.loses("EVAL")
	lost := locks.NewMutex("jobs:a", WithTries(forever), WithExpiry(time.Hour))
	must(t, lost.Lock())
	expect(t, "its string", proxy.hasLost() && plain.Get(ctx, "jobs:a").Val() == lost.Value(), true)
	// One that gives up leaves nothing.
	within, cancel := context.WithCancel(ctx)
	done := inBackground(t, func() error { return locks.NewMutex("jobs:a", WithTries(forever)).LockContext(within) })
	cancel()
	says(t, done(), ErrFailed)
	expect(t, "the holder's string", plain.Get(ctx, "jobs:a").Val(), lost.Value())
	// A late owner changes nothing, also where the key has another type.
	must(t, plain.Del(ctx, "jobs:a").Err())
	must(t, plain.LPush(ctx, "jobs:a", "x").Err())
	failed(t, ErrExtendFailed)(lost.Extend())
	failed(t, ErrLockAlreadyExpired)(lost.Unlock())
	failed(t, nil)(lost.Check(ctx))
	refused(t, locks.NewMutex("jobs:a").TryLock())
	expect(t, "warnings", said(), 1)
}

func TestTheFallbackSaysWhatItDoesNotHave(t *testing.T) {
	at, plain := started(t, "--without-module")
	missing := func(err error) { t.Helper(); says(t, err, ErrModuleMissing, "not available in the fallback") }
	locks := locksTo(t, at.Addr, WithFallback())
	missing(locks.NewMultiMutex([]string{"a", "b"}, nil).Lock()) // the first use
	mutex := locks.NewMutex("a")
	must(t, mutex.Lock())
	missing(locks.NewMutex("b", WithLinger(time.Second)).Lock())
	missing(mutex.Exec(ctx, "SET", "b", 1).Err())
	_, err := locks.Once(ctx, "b", unused)
	missing(err)
	released(t)(locksTo(t, at.Addr, WithFallback()).NewMutex("a", WithValue(mutex.Value())).Check(ctx)) // the first use
	released(t)(mutex.Unlock())
	expect(t, "keys", plain.DBSize(ctx).Val(), 0)
}
