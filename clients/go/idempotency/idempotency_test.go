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
	"testing"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
	"github.com/redis-lock/redis-lock/clients/go/internal/testserver"
	"github.com/redis/go-redis/v9"
)

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
	owner := func(r *http.Request) string { return r.Header.Get("Authorization") }
	return &Handler{Locks: locks, Next: next, Owner: owner, Limit: 10}, client
}

// ask sends a request with a key, and checks the answer.
func ask(t *testing.T, h http.Handler, key, owner, request string, status int, body, replayed string) http.Header {
	t.Helper()
	words := strings.SplitN(request, " ", 3)
	r := httptest.NewRequest(words[0], words[1], strings.NewReader(words[2]))
	r.Header.Set("Authorization", owner)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	got := w.Header().Get("Idempotency-Replayed")
	if w.Code != status || !strings.Contains(w.Body.String(), body) || got != replayed {
		t.Fatalf("got %d %q, replayed %q; want %d %q %q", w.Code, w.Body, got, status, body, replayed)
	}
	return w.Header()
}

func TestARequestIsAnsweredByItsFirstAnswer(t *testing.T) {
	count := 0
	h, client := handler(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		count++
		w.Header().Set("Location", "/charges/1")
		w.Header().Set("Set-Cookie", "session=1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d of %s", count, body)
	})
	const pay = "POST /pay 5 euro"
	first := ask(t, h, "k1", "", pay, 201, "charge 1 of 5 euro", "")
	again := ask(t, h, "k1", "", pay, 201, "charge 1 of 5 euro", "true")
	if first.Get("Set-Cookie") == "" || again.Get("Set-Cookie") != "" || again.Get("Location") != "/charges/1" {
		t.Fatal(first, again)
	}
	for _, other := range []string{"POST /pay 6 euro", "PUT /pay 5 euro", "POST /pay?twice 5 euro"} {
		ask(t, h, "k1", "", other, 422, "", "")
	}
	ask(t, h, "k2", "", pay, 201, "charge 2", "")
	ask(t, h, "", "", "POST /pay above the limit", 201, "charge 3", "")
	ask(t, h, "k3", "", "POST /pay above the limit", 413, "", "")
	ask(t, h, "k1", "somebody", pay, 201, "charge 4", "") // The same key of another owner is another one.
	for _, key := range client.Keys(context.Background(), "*").Val() {
		if left := client.PTTL(context.Background(), key).Val(); left < 23*time.Hour {
			t.Fatal(key, left)
		}
	}
}

func TestAServerErrorAndAPanicAreNotKept(t *testing.T) {
	count := 0
	h, _ := handler(t, func(w http.ResponseWriter, _ *http.Request) {
		count++
		if count == 1 {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "said", []int{http.StatusBadGateway, http.StatusConflict}[count-2])
	})
	func() {
		defer func() { _ = recover() }()
		ask(t, h, "k", "", "POST /pay ", 0, "", "")
	}()
	ask(t, h, "k", "", "POST /pay ", 502, "said", "")
	ask(t, h, "k", "", "POST /pay ", 409, "said", "")
	ask(t, h, "k", "", "POST /pay ", 409, "said", "true")
}

func TestARequestInProgressIsAConflictAndOutlivesItsClient(t *testing.T) {
	begun, finish, ended := make(chan bool), make(chan bool), make(chan error, 1)
	h, _ := handler(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		ended <- r.Context().Err()
		fmt.Fprint(w, "done")
	})
	within, cancel := context.WithCancel(context.Background())
	request := httptest.NewRequestWithContext(within, "POST", "/pay", nil)
	request.Header.Set("Idempotency-Key", "k1")
	answered := make(chan bool)
	go func() {
		h.ServeHTTP(httptest.NewRecorder(), request)
		close(answered)
	}()
	<-begun
	cancel()
	ask(t, h, "k1", "", "POST /pay ", 409, "in progress", "")
	close(finish)
	if err := <-ended; err != nil {
		t.Fatal("the work ended with its client")
	}
	<-answered
	ask(t, h, "k1", "", "POST /pay ", 200, "done", "true")
}

func TestWithoutAServerNothingIsExecuted(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	h, _ := handler(t, func(http.ResponseWriter, *http.Request) { panic("it shall not run") })
	h.Locks = redislock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	ask(t, h, "k1", "", "POST /pay ", 503, "unknown", "")
	if !strings.Contains(said.String(), "refused") {
		t.Fatal(said.String())
	}
}
