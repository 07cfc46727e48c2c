package redislock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// What the scenarios of clients/vectors/once.txt do with results.

var errMaker = errors.New("the maker failed")

// A maker makes results as a scenario says, one after the other.
type maker struct {
	count *atomic.Int32
	begun chan bool
	ends  chan func() ([]byte, error)
}

func newMaker(count *atomic.Int32) *maker {
	return &maker{count: count, begun: make(chan bool, 1), ends: make(chan func() ([]byte, error), 1)}
}

// told waits for the maker's beginning, or has it end.
func (m *maker) told(verb string, words []string) {
	switch verb {
	case "making":
		<-m.begun
	case "returns":
		m.ends <- func() ([]byte, error) { return []byte(words[0]), nil }
	case "raises":
		m.ends <- func() ([]byte, error) { return nil, errMaker }
	}
}

// get is a call of Once. What it makes is in the words, or it waits to be told.
func (a *actor) get(words []string) string {
	options := []OnceOption{WithEarly(0)}
	end := func() ([]byte, error) {
		a.maker.begun <- true
		return (<-a.maker.ends)()
	}
	for _, word := range words[1:] {
		switch option, value, _ := strings.Cut(word, "="); option {
		case "make":
			end = func() ([]byte, error) { return []byte(value), nil }
		case "fail":
			end = func() ([]byte, error) { return nil, errMaker }
		case "keep":
			options = append(options, WithKeep(ms(value)))
		case "early":
			options = append(options, WithEarly(ms(value)))
		case "ttl":
			options = append(options, WithTTL(ms(value)))
		case "wait":
			options = append(options, WithWait(ms(value)))
		}
	}
	made := "got:"
	result, err := a.locks.Once(ctx, words[0], func(context.Context) ([]byte, error) {
		a.maker.count.Add(1)
		result, err := end()
		if err == nil {
			made = "made:"
		}
		return result, err
	}, options...)
	switch {
	case err == nil:
		return made + string(result)
	case errors.Is(err, errMaker):
		return "failed"
	case errors.Is(err, &ErrTaken{}):
		return "busy"
	}
	return outcome(false, err)
}

// A spy is a server that knows only which lock it was asked for.
type spy struct {
	driver.Driver
	lock string
}

func (s *spy) Send(_ context.Context, commands ...driver.Command) []driver.Reply {
	if commands[0].Args[0] == "LOCK.ONCE" {
		s.lock = commands[0].FirstKey()
	}
	return make([]driver.Reply, len(commands))
}

// lockOf returns the key of the lock of a result.
func lockOf(name string) string {
	s := &spy{}
	_, _ = NewWith(s).Once(ctx, name, unused, WithWait(0))
	return s.lock
}
