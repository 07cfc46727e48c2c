package redislock

import (
	"errors"
	"fmt"
)

// ErrFailed is returned by Lock when its context ended before the lock was had. The context's error is wrapped beside it.
var ErrFailed = errors.New("redislock: failed to acquire lock")

// ErrExtendFailed is returned by Extend when the lock is no longer held. An [ErrTaken] is wrapped beside it, which is
// what redsync returns there.
var ErrExtendFailed = errors.New("redislock: failed to extend lock")

// ErrLockAlreadyExpired is returned by Unlock when the lock is no longer held.
var ErrLockAlreadyExpired = errors.New("redislock: failed to unlock, lock was already expired")

// ErrNotHeld is returned by Exec when the lock is no longer held. The command was not run.
var ErrNotHeld = errors.New("redislock: failed to run the command, lock is not held")

// ErrCancelled is returned by Lock when somebody has ended its wait by LOCK.CANCEL. What the server said is wrapped beside it.
var ErrCancelled = errors.New("redislock: the wait was cancelled")

// ErrExpiry is wrapped where the server's setting lock.max-ttl is shorter than the expiry. What the server said is wrapped beside it.
var ErrExpiry = errors.New("redislock: the expiry (WithExpiry, or atMost of RunOnce) is too long")

// ErrUnsupported is wrapped where the server does not know the command of what was asked. The text names it.
var ErrUnsupported = errors.New("redislock: the server does not know the command")

// ErrModuleMissing is wrapped where the server has no redis-lock module. The text says how to load it, and what [WithFallback] offers
// where it cannot be loaded.
var ErrModuleMissing = errors.New("redislock: the server has no redis-lock module")

// ErrTaken is returned, as a pointer, when somebody else holds the lock.
type ErrTaken struct {
	// Nodes is always [0]: there is one server. It is here because redsync has it.
	Nodes []int
}

func taken() error { return &ErrTaken{Nodes: []int{0}} }

func (err ErrTaken) Error() string {
	return fmt.Sprintf("redislock: lock already taken, locked nodes: %v", err.Nodes)
}

// Is lets errors.Is(err, &ErrTaken{}) find an ErrTaken whatever its nodes.
func (err ErrTaken) Is(target error) bool {
	switch target.(type) {
	case *ErrTaken, ErrTaken:
		return true
	}
	return false
}

// A RedisError is an answer of the server that is an error, or the failure to get one.
type RedisError struct {
	// Node is always 0: there is one server.
	Node int
	Err  error
}

func (e RedisError) Error() string { return fmt.Sprintf("redislock: %s", e.Err) }

// Unwrap returns what happened.
func (e RedisError) Unwrap() error { return e.Err }
