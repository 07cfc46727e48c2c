// Package idempotency answers a request that a client sends again, after a time-out for example, by what was answered the first time.
// The client names the request in the header Idempotency-Key.
//
//	http.Handle("/payments", &idempotency.Handler{Locks: locks, Next: payments, Owner: userOf})
//
// It is on [redislock.RedisLock.Once], so a request is executed at least once: if the process dies before the answer is stored, the
// client's next try is executed again.
package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	redislock "github.com/redis-lock/redis-lock/clients/go"
)

// stored are the headers of an answer that are stored with it, as net/http writes them. The others, such as Set-Cookie, only the first one
// gets.
var stored = []string{"Content-Type", "Content-Encoding", "Content-Language", "Etag", "Last-Modified", "Link", "Location"}

// A Handler is a middleware. Requests without the header Idempotency-Key go to Next as they are. With it, Next answers the first one,
// and the others get that answer, with the header Idempotency-Replayed: true. Next works on when the client goes away. If Next panics
// or answers with 500 or above, nothing is stored, and the next request with the key is the first one again.
//
// It answers 409 while the first one is executed, 422 if the key came with another method, target or body before, 413 to a body above
// Limit, and 503 if the server of the locks fails: Next is not called then.
type Handler struct {
	Locks *redislock.RedisLock
	Next  http.Handler
	Owner func(*http.Request) string // whose key it is: others with the same key never see the answer; nil: all clients are one
	Keep  time.Duration              // how long an answer is stored; 0: 24 h
	Limit int64                      // bytes of a request's body, which is held in memory, as is the answer; 0: 1 MiB
}

// An answer is what is stored, in JSON.
type answer struct {
	Request string      `json:"request"` // the fingerprint
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    []byte      `json:"body"`
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	owner := ""
	if h.Owner != nil {
		owner = h.Owner(r)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, cmp.Or(h.Limit, 1<<20)))
	if err != nil {
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "the body cannot be read: "+err.Error(), status)
		return
	}
	request := digest(r.Method, r.URL.RequestURI(), string(body))
	var first *recorder
	ctx := context.WithoutCancel(r.Context())
	text, err := h.Locks.Once(ctx, "idempotency:{"+digest(owner, key)+"}", func(ctx context.Context) ([]byte, error) {
		first = &recorder{header: http.Header{}, answer: answer{Request: request}}
		read := r.WithContext(ctx)
		read.Body = io.NopCloser(bytes.NewReader(body))
		h.Next.ServeHTTP(first, read)
		first.WriteHeader(http.StatusOK) // If nothing was written.
		if first.Status >= http.StatusInternalServerError {
			return nil, errNotKept
		}
		kept := first.answer
		kept.Header = kept.Header.Clone()
		maps.DeleteFunc(kept.Header, func(name string, _ []string) bool { return !slices.Contains(stored, name) })
		return json.Marshal(kept)
	}, redislock.WithKeep(cmp.Or(h.Keep, 24*time.Hour)), redislock.WithEarly(0), redislock.WithWait(0))
	before := answer{}
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	switch {
	case first != nil:
		reply(w, first.answer)
	case errors.Is(err, &redislock.ErrTaken{}):
		http.Error(w, "a request with this Idempotency-Key is in progress", http.StatusConflict)
	case err != nil:
		http.Error(w, "it is unknown whether this Idempotency-Key was used before", http.StatusServiceUnavailable)
	case before.Request != request:
		http.Error(w, "this Idempotency-Key was used for another request", http.StatusUnprocessableEntity)
	default:
		w.Header().Set("Idempotency-Replayed", "true")
		reply(w, before)
	}
	if err != nil && !errors.Is(err, errNotKept) && !errors.Is(err, &redislock.ErrTaken{}) {
		slog.ErrorContext(ctx, "redislock: an answer for an Idempotency-Key was not read or not stored", "error", err)
	}
}

// errNotKept is the end of a request that may be tried again.
var errNotKept = errors.New("a server error is not kept")

func reply(w http.ResponseWriter, a answer) {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// A recorder keeps an answer.
type recorder struct {
	answer
	header http.Header // that is not sent yet
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= 200 { // What is below comes before the answer.
		r.answer.Header, r.Status = r.header.Clone(), status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.Body = append(r.Body, b...)
	return len(b), nil
}

// digest is the same only for the same words in the same order.
func digest(words ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", words)))
}
