package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand"
	"strings"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
	"github.com/redis/go-redis/v9"
)

// lost is what a lock without the module does not have.
const lost = "no fair queue, no fence, no readers and writers, no counted or several locks, no guarded commands, and a clock that an" +
	" eviction or a failover can cut short"

// WithFallback lets locks work on a server that has no redis-lock module and cannot load it, by SET NX PX and Lua scripts.
// Without this option that is an [ErrModuleMissing]. On a server that has the module the option changes nothing.
//
// Such a lock has less. There is no queue: waiters ask again and again, in no order. [Mutex.Fence] is 0: never send it to a resource.
// An eviction or a failover can end the lock early. RWMutex, Semaphore, MultiMutex, Exec, WithLinger and a RunOnce with
// atLeast return an ErrModuleMissing. The first use says so once, by slog.Warn.
//
// The choice is made at the first use, from what the server answers, and stays as long as the RedisLock.
func WithFallback() ClientOption { return func(r *RedisLock) { r.fallback = true } }

// A choice is whether locks are the module's.
type choice int

const (
	undecided choice = iota
	theModule
	theFallback
)

// The scripts act only if the token is still the caller's. A key of another type is somebody else's.
const (
	ours         = "redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1]"
	renewOurs    = "if " + ours + " then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
	releaseOurs  = "if " + ours + " then return redis.call('del', KEYS[1]) end return 0"
	whetherOurs  = "if " + ours + " then return 1 end return 0"
	shortestPoll = 25 * time.Millisecond
	longestPoll  = 75 * time.Millisecond
)

var scripts = map[string]string{"LOCK.RENEW": renewOurs, "LOCK.RELEASE": releaseOurs, "LOCK.CHECK": whetherOurs}

// fallbackOf is the script that does the same as a command about a key and a token.
func fallbackOf(command driver.Command) driver.Command {
	name, _ := command.Args[0].(string)
	return driver.Command{Args: append([]any{"EVAL", scripts[name], 1}, command.Args[1:]...), Key: 3, Again: true}
}

func (r *RedisLock) chosen() choice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.choice
}

// choose notes what an answer to one of the module's commands tells: whether the server has the module. The first one counts.
func (r *RedisLock) choose(err error) choice {
	absent := withoutModule(err)
	if !r.fallback || err != nil && !absent && (!isTaken(err) && !answered(err) || passes(err) || unknownCommand(err) != "") {
		return r.chosen() // It tells nothing, or it need not be known.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.choice != undecided {
		return r.choice
	}
	r.choice = theModule
	if absent {
		r.choice = theFallback
		slog.Warn("redislock: the server has no redis-lock module, so the fallback takes locks by SET NX PX: " + lost)
	}
	return r.choice
}

// owned sends commands that only the holder's token succeeds with, in the form of the fallback where that is the choice.
func (r *RedisLock) owned(ctx context.Context, commands ...driver.Command) []driver.Reply {
	if r.chosen() != theFallback {
		replies := r.driver.Do(ctx, commands...)
		if r.choose(replies[0].Err) != theFallback {
			return replies
		}
	}
	scripts := make([]driver.Command, len(commands))
	for i, command := range commands {
		scripts[i] = fallbackOf(command)
	}
	return r.driver.Do(ctx, scripts...)
}

// notInFallback returns an error for what the fallback does not have.
func notInFallback(what string) error {
	return fmt.Errorf("%w: %s not available in the fallback", ErrModuleMissing, what)
}

// beyondFallback tells what this mutex has and the fallback does not.
func (m *Mutex) beyondFallback() string {
	switch {
	case m.acquire == acquireSeveral:
		return "several locks in one step are"
	case m.limit > 0:
		return "a semaphore is"
	case strings.HasPrefix(m.acquire, "RWLOCK."):
		return "a reader-writer lock is"
	case m.linger != nil:
		return "WithLinger is"
	}
	return ""
}

// fallbackLock asks until the lock is had, patience or ctx is over, or something happens that waiting does not cure.
func (m *Mutex) fallbackLock(ctx context.Context, value string, patience time.Duration) error {
	if what := m.beyondFallback(); what != "" {
		return notInFallback(what)
	}
	deadline := time.Now().Add(patience)
	unsure := false // the server may have a hold of ours
	for {
		held, err := m.fallbackAsk(ctx, value, unsure)
		if err == nil {
			m.remember(held)
			return nil
		}
		unsure = unsure || errors.Is(err, errLate) || !isTaken(err) && !answered(err)
		over := time.Until(deadline) < time.Millisecond
		switch {
		case ctx.Err() != nil:
			err, over = fmt.Errorf("%w: %w", ErrFailed, ctx.Err()), true
		case isTaken(err):
			err = taken()
		default:
			over = over || answered(err) && !passes(err)
			err = &RedisError{Err: err}
		}
		if over {
			if unsure {
				within, cancel := context.WithTimeout(context.WithoutCancel(ctx), margin)
				defer cancel()
				m.locks.owned(within, about("LOCK.RELEASE", m.Name(), value))
			}
			return err
		}
		poll := shortestPoll + time.Duration(mathrand.Int63n(int64(longestPoll-shortestPoll)))
		sleep(ctx, min(poll, time.Until(deadline)))
	}
}

// fallbackAsk asks once. A hold whose reply was lost is had by its token.
func (m *Mutex) fallbackAsk(ctx context.Context, value string, unsure bool) (hold, error) {
	held := hold{value: value, sent: time.Now()}
	expiry := m.expiry.Milliseconds()
	reply := m.locks.send(ctx, about("SET", m.Name(), value, "NX", "PX", expiry))
	if reply.Err != nil {
		return held, reply.Err
	}
	if reply.Value != nil {
		return held, m.inTime(held)
	}
	if !unsure && reply.Sent < 2 {
		return held, redis.Nil
	}
	held.sent = time.Now()
	renewed, err := numberIn(m.locks.owned(ctx, about("LOCK.RENEW", m.Name(), value, expiry))[0])
	switch {
	case err != nil:
		return held, err
	case renewed == 0:
		return held, redis.Nil
	}
	return held, m.inTime(held)
}

// askAgain takes the lock once more with a token that has lost it.
func (m *Mutex) askAgain(ctx context.Context, value string) (hold, error) {
	if m.locks.chosen() == theFallback {
		return m.fallbackAsk(ctx, value, false)
	}
	return m.ask(ctx, value, 0, 0)
}

// unknownCommand returns which of the module's commands the server does not know, if that is what the error says.
func unknownCommand(err error) string {
	reply := replyIn(err)
	if reply == nil {
		return ""
	}
	text, ok := strings.CutPrefix(strings.TrimPrefix(reply.Error(), "ERR "), "unknown command ")
	if !ok {
		return ""
	}
	// Some servers quote it otherwise.
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("'`", r) })
	if len(words) == 0 || !strings.HasPrefix(words[0], "LOCK.") && !strings.HasPrefix(words[0], "RWLOCK.") {
		return ""
	}
	return words[0]
}

// withoutModule tells whether the server said that it does not know a command that the module has on every server.
func withoutModule(err error) bool {
	command := unknownCommand(err)
	return command != "" && command != "LOCK.EXEC"
}

// lacking says in the error which command the server does not know, that there is no module, or that it grants no lease so long, if
// that is the error.
func (m *Mutex) lacking(ctx context.Context, err error) error {
	if says(err, "ttl must not be above lock.max-ttl") {
		return fmt.Errorf("%w: %w", ErrExpiry, err)
	}
	command := unknownCommand(err)
	if command == "" {
		return err
	}
	if !withoutModule(err) {
		reply := m.locks.send(ctx, about("LOCK.INFO", m.Name()))
		if !withoutModule(reply.Err) {
			return fmt.Errorf("%w %s: %w", ErrUnsupported, command, err)
		}
		err = &RedisError{Err: reply.Err}
	}
	if m.locks.choose(err) == theFallback {
		if what := m.beyondFallback(); what != "" {
			return notInFallback(what)
		}
	}
	return fmt.Errorf("%w. Load it by `loadmodule /path/libredis_lock.so` in the server's configuration, and restart the server. Where"+
		" modules cannot be loaded, the option redislock.WithFallback takes locks by SET NX PX, with less: %s: %w", ErrModuleMissing, lost, err)
}
