package idempotency

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// handler returns a middleware over next, on a server of its own.
func handler(t *testing.T, next http.HandlerFunc) (*Handler, *redis.Client) {
	t.Helper()
	server, err := testserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	locks := redislock.New(client)
	t.Cleanup(func() {
		_, _ = locks.Close(), client.Close()
		server.Stop()
	})
	return &Handler{Locks: locks, Next: next}, client
}

// ask sends a request with a key and returns the answer.
func ask(h http.Handler, key, method, target, body string) *http.Response {
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w.Result()
}

func expect(t *testing.T, answer *http.Response, status int, body, replayed string) {
	t.Helper()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != status || !strings.Contains(string(text), body) || answer.Header.Get("Idempotency-Replayed") != replayed {
		t.Fatalf("got %d %q, replayed %q; want %d %q %q", answer.StatusCode, text, answer.Header.Get("Idempotency-Replayed"), status, body, replayed)
	}
}

// charge answers with how many charges there were and the body.
func charge(count *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/charges/1")
		w.Header().Set("Set-Cookie", "session=1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d of %s", count.Add(1), body)
	}
}

func TestAServerErrorIsNotKept(t *testing.T) {
	var count atomic.Int32
	h, _ := handler(t, func(w http.ResponseWriter, _ *http.Request) {
		status := []int{http.StatusBadGateway, http.StatusConflict}[min(count.Add(1)-1, 1)]
		http.Error(w, "said", status)
	})
	expect(t, ask(h, "k", "POST", "/pay", ""), 502, "said", "")
	expect(t, ask(h, "k", "POST", "/pay", ""), 409, "said", "")
	expect(t, ask(h, "k", "POST", "/pay", ""), 409, "said", "true")
}

func TestARequestIsAnsweredByItsFirstAnswer(t *testing.T) {
	var count atomic.Int32
	h, client := handler(t, charge(&count))
	h.Owner = func(r *http.Request) string { return r.Header.Get("Authorization") }
	h.Limit = 10
	first := ask(h, "k1", "POST", "/pay", "5 euro")
	expect(t, first, 201, "charge 1 of 5 euro", "")
	again := ask(h, "k1", "POST", "/pay", "5 euro")
	expect(t, again, 201, "charge 1 of 5 euro", "true")
	if first.Header.Get("Set-Cookie") == "" || again.Header.Get("Set-Cookie") != "" || again.Header.Get("Location") != "/charges/1" {
		t.Fatal(first.Header, again.Header)
	}
	for _, other := range [][3]string{{"POST", "/pay", "6 euro"}, {"PUT", "/pay", "5 euro"}, {"POST", "/pay?twice", "5 euro"}} {
		expect(t, ask(h, "k1", other[0], other[1], other[2]), 422, "", "")
	}
	expect(t, ask(h, "k2", "POST", "/pay", "5 euro"), 201, "charge 2", "")
	expect(t, ask(h, "", "POST", "/pay", "a body above the limit"), 201, "charge 3", "")
	expect(t, ask(h, "k3", "POST", "/pay", "a body above the limit"), 413, "", "")
	// The same key of another owner is another one.
	request := httptest.NewRequest("POST", "/pay", strings.NewReader("5 euro"))
	request.Header.Set("Idempotency-Key", "k1")
	request.Header.Set("Authorization", "somebody")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	expect(t, w.Result(), 201, "charge 4", "")
	for _, key := range client.Keys(ctx, "*").Val() {
		if left := client.PTTL(ctx, key).Val(); left < 23*time.Hour {
			t.Fatal(key, left)
		}
	}
}

func TestARequestInProgressIsAConflictAndOutlivesItsClient(t *testing.T) {
	begun, finish := make(chan bool), make(chan bool)
	var cancelled atomic.Bool
	h, _ := handler(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		cancelled.Store(r.Context().Err() != nil)
		fmt.Fprint(w, "done")
	})
	within, cancel := context.WithCancel(ctx)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		request := httptest.NewRequestWithContext(within, "POST", "/pay", nil)
		request.Header.Set("Idempotency-Key", "k1")
		h.ServeHTTP(httptest.NewRecorder(), request)
	}()
	<-begun
	cancel()
	expect(t, ask(h, "k1", "POST", "/pay", ""), 409, "in progress", "")
	close(finish)
	<-ended
	expect(t, ask(h, "k1", "POST", "/pay", ""), 200, "done", "true")
	if cancelled.Load() {
		t.Fatal("the work ended with its client")
	}
}

func TestAPanicStoresNothing(t *testing.T) {
	trouble := true
	h, client := handler(t, func(w http.ResponseWriter, r *http.Request) {
		if trouble {
			panic(http.ErrAbortHandler)
		}
	})
	func() {
		defer func() { _ = recover() }()
		ask(h, "k1", "POST", "/pay", "")
		t.Error("it has not panicked")
	}()
	if keys := client.DBSize(ctx).Val(); keys != 0 {
		t.Fatal(keys, "keys")
	}
	trouble = false
	expect(t, ask(h, "k1", "POST", "/pay", ""), 200, "", "")
}

func TestWithoutAServerNothingIsExecuted(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	h := &Handler{Locks: redislock.New(client), Next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("it shall not run") })}
	expect(t, ask(h, "k1", "POST", "/pay", ""), 503, "unknown", "")
	if !strings.Contains(said.String(), "refused") {
		t.Fatal(said.String())
	}
}
