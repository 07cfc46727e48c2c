package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// TestVectors plays the scenarios of clients/vectors, which all the adapters have in common. Most of them wait, so some play at a time.
func TestVectors(t *testing.T) {
	var scenarios []string
	for _, file := range []string{"scenarios", "faults", "once"} {
		text, err := os.ReadFile("../vectors/" + file + ".txt")
		must(t, err)
		scenarios = append(scenarios, strings.Split(string(text), "\nscenario ")[1:]...)
	}
	for first := range 4 {
		t.Run("some", func(t *testing.T) {
			t.Parallel()
			server, _ := started(t)
			plain, _ := started(t, "--without-module")
			bounded, _ := started(t, "max-ttl", "2000")
			places := map[string]*testserver.Server{"plain": plain, "strict": plain, "bounded": bounded}
			for at := first; at < len(scenarios); at += 4 {
				name, steps, _ := strings.Cut(scenarios[at], "\n")
				_, place, _ := strings.Cut(name, " on ")
				t.Run(name, func(t *testing.T) { playScenario(t, steps, place, cmp.Or(places[place], server)) })
			}
		})
	}
}

func playScenario(t *testing.T, steps, place string, at *testserver.Server) {
	if strings.HasSuffix(t.Name(), "needs_ttl") {
		t.Skip("a Mutex has one expiry")
	}
	play := &play{t: t, server: at, admin: clientOf(t, at), actors: map[string]*actor{}}
	if place == "plain" {
		play.options = []ClientOption{WithFallback()}
	}
	must(t, play.admin.FlushAll(ctx).Err())
	must(t, play.admin.ConfigResetStat(ctx).Err())
	for _, name := range []string{"A", "B", "C", "D", "E"} { // Their clients are there before anything goes wrong.
		if strings.Contains("\n"+steps, "\n"+name+" ") {
			play.actor(name)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(steps), "\n") {
		step, want, _ := strings.Cut(line, " = ")
		words := strings.Fields(step)
		if got := play.step(words[0], words[1:]); want != "" && got != want {
			t.Fatalf("%s: got %s", line, got)
		}
	}
}

type play struct {
	t       *testing.T
	server  *testserver.Server
	admin   *redis.Client
	options []ClientOption
	actors  map[string]*actor
	made    atomic.Int32 // how many makers of results have begun
}

// An actor is a program with a client of its own, and what it holds.
type actor struct {
	play    *play
	proxy   *proxy
	locks   *RedisLock
	mutex   *Mutex
	within  context.Context
	stop    context.CancelFunc
	pending chan string
	making  chan bool  // its maker of a result has begun
	ends    chan maker // what it does in the end
}

// A maker is the end of a maker of a result: the result, or an error.
type maker struct {
	result string
	err    error
}

var errMaker = errors.New("the maker failed")

func (p *play) actor(name string) *actor {
	if p.actors[name] == nil {
		proxy := newProxy(p.t, p.server.Addr)
		a := &actor{
			play: p, proxy: proxy, locks: locksTo(p.t, proxy.addr, p.options...), stop: func() {},
			making: make(chan bool, 1), ends: make(chan maker, 1),
		}
		p.actors[name] = a
		p.t.Cleanup(func() { a.stop() })
	}
	return p.actors[name]
}

// said is a word for one of both.
func said(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// optionsIn parts words such as ttl=100 from the others.
func optionsIn(words []string) (others []string, options map[string]string) {
	options = map[string]string{}
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			options[name] = value
		} else {
			others = append(others, word)
		}
	}
	return others, options
}

func anys(words []string) []any {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	return args
}

func (p *play) step(subject string, words []string) string {
	t := p.t
	switch subject {
	case "server":
		reply, err := p.admin.Do(ctx, anys(words)...).Result()
		must(t, err)
		return fmt.Sprint(reply)
	case "queue":
		eventually(t, "so many wait", func() bool { return strconv.Itoa(waiting(p.admin, words[0])) == words[1] })
	case "places":
		return strconv.Itoa(waiting(p.admin, words[0]))
	case "gone":
		eventually(t, "its end", func() bool { return p.admin.Exists(ctx, words[0]).Val() == 0 })
	case "calls":
		return strconv.Itoa(calls(t, p.admin, words[0]))
	case "lock":
		var keys []string
		_, _ = locksTo(p.t, p.server.Addr).Once(ctx, words[0], func(context.Context) ([]byte, error) {
			keys = p.admin.Keys(ctx, "*").Val()
			return nil, errMaker
		})
		return strings.Join(keys, " ")
	case "made":
		return strconv.Itoa(int(p.made.Load()))
	case "rises":
		expect(t, "the fence rises", p.actors[words[0]].mutex.Fence() < p.actors[words[1]].mutex.Fence(), true)
	case "fence":
		return strconv.FormatInt(p.actors[words[0]].mutex.Fence(), 10)
	case "pause":
		time.Sleep(ms(words[0]))
	case "cut":
		p.actor(words[0]).proxy.cut()
	case "join":
		p.actor(words[0]).proxy.join()
	case "busy":
		p.busy(ms(words[0]))
	default:
		a := p.actor(subject)
		switch words[0] {
		case "begin":
			a.pending = make(chan string, 1)
			go func() { a.pending <- a.do(words[1], words[2:]) }()
		case "end":
			return <-a.pending
		default:
			return a.do(words[0], words[1:])
		}
	}
	return ""
}

// busy has the server run a script without end, which is killed after a while.
func (p *play) busy(while time.Duration) {
	must(p.t, p.admin.ConfigSet(ctx, "lua-time-limit", "100").Err())
	client := redis.NewClient(&redis.Options{Addr: p.server.Addr, ReadTimeout: -1, MaxRetries: -1})
	go func() {
		defer client.Close()
		client.Eval(ctx, "while true do end", nil)
	}()
	eventually(p.t, "a busy server", func() bool { return strings.HasPrefix(fmt.Sprint(p.admin.Ping(ctx).Err()), "BUSY") })
	time.AfterFunc(while, func() { p.server.Client().ScriptKill(ctx) })
}

func (a *actor) do(verb string, words []string) string {
	var ok bool
	var err error
	switch verb {
	case "release":
		a.stop()
		ok, err = a.mutex.Unlock()
	case "renew":
		ok, err = a.mutex.Extend()
	case "believes":
		return said(time.Now().Before(a.mutex.Until()), "yes", "no")
	case "check":
		if ok, err = a.mutex.Check(ctx); err == nil {
			return said(ok, "yes", "no")
		}
	case "exec":
		reply := a.mutex.Exec(ctx, words[0], anys(words[1:])...)
		if err = reply.Err(); err == nil {
			return fmt.Sprint(reply.Val())
		}
	case "keep":
		a.within, a.stop = a.mutex.KeepAlive(ctx)
		return ""
	case "told":
		<-a.within.Done()
		return ""
	case "once":
		job := func(context.Context, *Mutex) error { return nil }
		ok, err = a.locks.RunOnce(ctx, words[0], ms(words[1]), ms(words[2]), job)
		if err == nil {
			return said(ok, "ran", "skipped")
		}
	case "get":
		return a.get(words)
	case "making":
		<-a.making
		return ""
	case "returns":
		a.ends <- maker{words[0], nil}
		return ""
	case "raises":
		a.ends <- maker{"", errMaker}
		return ""
	default:
		err = a.take(verb, words)
		switch {
		case err == nil:
			return "held"
		case errors.Is(err, &ErrTaken{}):
			return "busy"
		}
	}
	return outcome(ok, err)
}

func ms(word string) time.Duration {
	number, _ := strconv.Atoi(word)
	return time.Duration(number) * time.Millisecond
}

func outcome(ok bool, err error) string {
	switch {
	case ok && err == nil:
		return "ok"
	case err != nil && strings.Contains(err.Error(), "NOPERM"):
		return "denied"
	case errors.Is(err, ErrModuleMissing):
		return "missing"
	case errors.Is(err, ErrCancelled):
		return "cancelled"
	case errors.Is(err, ErrExpiry):
		return "too-long"
	case errors.Is(err, ErrExtendFailed), errors.Is(err, ErrLockAlreadyExpired), errors.Is(err, ErrNotHeld), errors.Is(err, &ErrTaken{}):
		return "lost"
	}
	return fmt.Sprint(err)
}

func (a *actor) take(kind string, words []string) error {
	names, said := optionsIn(words)
	options := []Option{WithExpiry(ms(cmp.Or(said["ttl"], "30000"))), WithTries(2), WithRetryDelay(ms(said["wait"]))}
	if said["linger"] != "" {
		options = append(options, WithLinger(ms(said["linger"])))
	}
	switch kind {
	case "lock":
		a.mutex = a.locks.NewMutex(names[0], options...)
	case "write":
		a.mutex = a.locks.NewRWMutex(names[0], options...).Mutex
	case "read":
		a.mutex = a.locks.NewRWMutex(names[0], options...).Reader()
	case "permit":
		permits, _ := strconv.Atoi(names[1])
		a.mutex = a.locks.NewSemaphore(names[0], permits, options...).newPermit()
	case "multi":
		exclusive, shared := names, []string(nil)
		if at := slices.Index(names, "/"); at >= 0 {
			exclusive, shared = names[:at], names[at+1:]
		}
		a.mutex = a.locks.NewMultiMutex(exclusive, shared, options...)
	}
	return a.mutex.Lock()
}

// get is a call of Once. What it makes is in the words, or it waits to be told.
func (a *actor) get(words []string) string {
	_, says := optionsIn(words)
	options := []OnceOption{WithEarly(ms(says["early"]))}
	for name, option := range map[string]func(time.Duration) OnceOption{"keep": WithKeep, "ttl": WithTTL, "wait": WithWait} {
		if value, ok := says[name]; ok {
			options = append(options, option(ms(value)))
		}
	}
	value, makes := says["make"]
	end, made := maker{value, nil}, false
	if says["fail"] != "" {
		end.err = errMaker
	}
	result, err := a.locks.Once(ctx, words[0], func(context.Context) ([]byte, error) {
		a.play.made.Add(1)
		if !makes && end.err == nil {
			a.making <- true
			end = <-a.ends
		}
		made = end.err == nil
		return []byte(end.result), end.err
	}, options...)
	switch {
	case err == nil:
		return said(made, "made:", "got:") + string(result)
	case errors.Is(err, errMaker):
		return "failed"
	case errors.Is(err, &ErrTaken{}):
		return "busy"
	}
	return outcome(false, err)
}
