// Package driver is what redislock asks of a Redis library, so that a mutex works over any of them.
//
// redislock has the driver of go-redis built in. Those of rueidis and valkey-go are modules of their own, beside this one.
// A driver for another library implements [Driver], and is given to redislock.NewWith.
package driver

import (
	"context"
	"encoding"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Driver sends commands to a server, a primary with its replicas, or a cluster. It is safe for concurrent use.
type Driver interface {
	// Do sends commands that the server answers at once, in one pipeline where it can. It returns a reply for each.
	Do(ctx context.Context, commands ...Command) []Reply

	// Wait sends one command that the server may answer late, on a connection that nothing else uses meanwhile. When ctx
	// ends, Wait returns and the connection is closed, so that the server learns that nobody waits any more.
	//
	// In a cluster it follows MOVED and ASK. It does not send the command again after any other failure: the caller does.
	//
	// If the command binds and the server has answered it without an error, the connection is returned as well.
	Wait(ctx context.Context, command Command) (Reply, Bound)

	// Close closes the connections that the driver has made itself, those that are bound among them. The library's client is
	// the user's, and stays open.
	Close() error
}

// Bound is a connection that a hold depends on.
type Bound interface {
	// Release takes the connection back, to be used again.
	Release()
}

// A Command is the words of a command. They are strings and integers, and those of a user's own command are of any type that
// [Words] knows.
type Command struct {
	Args  []any
	Key   int  // the index of the first key, by which a cluster's client finds the server; 0: there is none
	Again bool // it does no harm when it is sent again, because its reply was lost
	Binds bool // its connection is the hold's: see Wait
}

// FirstKey returns the first key, or nothing.
func (c Command) FirstKey() string {
	if c.Key == 0 {
		return ""
	}
	return fmt.Sprint(c.Args[c.Key])
}

// A Reply is what the server said.
type Reply struct {
	// Value is an int64, a string, a bool, a float64, a *big.Int, an []any or a map[any]any. It is nil for null.
	Value any
	// Err is an [Error], or any other error that has its method RedisError, if the server said so. Other errors say that
	// there is no reply.
	Err error
	// Sent is how often the command was sent and not refused, as far as the driver knows; 1 otherwise.
	Sent int
}

// An Error is a reply that is an error.
type Error string

func (e Error) Error() string { return string(e) }

// RedisError marks the errors that the server has sent, as it does in go-redis.
func (Error) RedisError() {}

// Redirection reads MOVED and ASK: which server the error names, and whether it has to be told ASKING first.
func Redirection(err error) (addr string, asking, ok bool) {
	if err == nil {
		return "", false, false
	}
	words := strings.Fields(err.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false, false
	}
	return words[2], words[0] == "ASK", true
}

// Words writes arguments as go-redis does: numbers in decimal, booleans as 1 and 0, times in RFC 3339, durations in ns.
func Words(args []any) ([]string, error) {
	words := make([]string, len(args))
	for i, arg := range args {
		word, err := word(arg)
		if err != nil {
			return nil, err
		}
		words[i] = word
	}
	return words, nil
}

func word(arg any) (string, error) {
	switch arg := arg.(type) {
	case nil:
		return "", nil
	case string:
		return arg, nil
	case []byte:
		return string(arg), nil
	case net.IP:
		return string(arg), nil
	case time.Time:
		return arg.Format(time.RFC3339Nano), nil
	case encoding.BinaryMarshaler:
		text, err := arg.MarshalBinary()
		return string(text), err
	}
	value := reflect.ValueOf(arg)
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			return word(value.Elem().Interface())
		}
		return "", nil
	case reflect.String:
		return value.String(), nil
	case reflect.Bool:
		if value.Bool() {
			return "1", nil
		}
		return "0", nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(value.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(value.Uint(), 10), nil
	case reflect.Float32:
		return strconv.FormatFloat(value.Float(), 'f', -1, 32), nil
	case reflect.Float64:
		return strconv.FormatFloat(value.Float(), 'f', -1, 64), nil
	}
	return "", fmt.Errorf("redislock: %T is no argument of a command (implement encoding.BinaryMarshaler)", arg)
}
