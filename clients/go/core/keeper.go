package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redis-lock/redis-lock/clients/go/driver"
)

// tryAgain is the longest time after which a renewal or a release is sent again that the server could not execute yet.
const tryAgain = 200 * time.Millisecond

// Renew begins the lease anew. It returns false when the hold is over, by the server's word or by this machine's clock. What passes is
// tried again until then. A hold that lingers is bound to another connection if its own has broken.
func (h *Hold) Renew(ctx context.Context) (bool, error) {
	h.asking <- struct{}{}
	defer func() { <-h.asking }()
	if h.isOver() {
		return false, nil
	}
	reply, sent, _ := h.insist(ctx, h.Until(), h.sendRenewal)
	switch {
	case number(reply) == 1:
		return h.heard(sent, true), nil // A release may have come between.
	case ClassOf(reply) == Answered:
		h.finish(true)
	}
	if h.isOver() {
		return false, nil
	}
	return false, h.trouble(ctx, "LOCK.RENEW", reply)
}

// sendRenewal sends a renewal once. That of a hold that lingers goes over its own connection, and proves that this lives. If it has
// broken, the hold is bound to another one.
func (h *Hold) sendRenewal(ctx context.Context) driver.Reply {
	ttl := h.lock.Expiry.Milliseconds()
	if !h.lingers() {
		return h.send(ctx, h.lock.Client.Driver, "LOCK.RENEW", ttl)
	}
	ctx = context.WithoutCancel(ctx) // The end of the caller's context would close the connection.
	if h.conn != nil {
		within, cancel := context.WithTimeout(ctx, min(Margin, h.lock.span()/3))
		defer cancel()
		if reply := h.send(within, h.conn, "LOCK.RENEW", ttl); !Leaves(reply) {
			return reply
		}
		h.conn.Close()
		h.conn = nil
	}
	within, cancel := context.WithTimeout(ctx, Margin)
	defer cancel()
	return h.bind(within, ttl)
}

// bind renews a hold over a new connection, and binds the hold to that, which only an acquire does. A renewal that has succeeded counts
// for the linger in any case: the server sees the end of another connection later, if it has not yet.
func (h *Hold) bind(ctx context.Context, ttl int64) driver.Reply {
	conn, err := h.lock.Client.Driver.Open(ctx, h.lock.Names[0])
	if err != nil {
		return h.send(ctx, h.lock.Client.Driver, "LOCK.RENEW", ttl)
	}
	renewed, free := h.send(ctx, conn, "LOCK.RENEW", ttl), true
	if sides := h.lock.Sides; sides != nil {
		if free = sides.TryLock(); free { // Otherwise the next renewal binds.
			defer sides.Unlock()
		}
	}
	if number(renewed) == 0 || !free || h.isOver() { // It was converted meanwhile, or released.
		conn.Release()
		return renewed
	}
	answer := conn.Send(ctx, h.lock.request(h.token))[0]
	switch number(answer) {
	case h.fence:
		h.depend(conn)
	case 0: // A guard says null to any acquire.
		conn.Release()
		if says(answer.Err, "WRONGTYPE") || says(answer.Err, "PARTIAL") {
			renewed.Value = int64(0)
		}
	default: // It was lost since its renewal, and nobody knows of this one.
		h.send(ctx, conn, "LOCK.RELEASE")
		conn.Close()
		renewed.Value = int64(0)
	}
	return renewed
}

// watch asks for a sign of life on the connection of a hold that lingers whenever there has been none for a third of the linger.
func (h *Hold) watch() {
	third := h.lock.Linger / 3
	for wait := third; h.life.Err() == nil; {
		sleep(h.life, wait)
		wait = third - h.ping(third)
	}
}

// ping asks for a sign of life if there has been none for a while, and returns how long ago the last one was. A renewal that is on its
// way comes first, and is one.
func (h *Hold) ping(while time.Duration) time.Duration {
	h.asking <- struct{}{}
	defer func() { <-h.asking }()
	h.mu.Lock()
	silent := time.Since(h.known)
	h.mu.Unlock()
	switch {
	case h.conn == nil:
		return 0
	case silent < while:
		return silent
	}
	sent := time.Now()
	within, cancel := context.WithTimeout(context.Background(), while) // A renewal that waits has time for another connection.
	defer cancel()
	if reply := h.conn.Send(within, driver.Command{Args: []any{"PING"}})[0]; ClassOf(reply) != Unheard {
		h.heard(sent, false)
	}
	return 0
}

// Keep renews the hold at a third of its expiry, or of its linger, in the background. It returns a context that ends when the hold is
// over: its cause is an [ErrNotHeld] then. stop ends the renewals and the context. It does not release.
//
// An error that is final ends the renewals, and is wrapped by the cause when the lease is over.
func (h *Hold) Keep(ctx context.Context) (within context.Context, stop context.CancelFunc) {
	within, cancel := h.Context(ctx)
	go h.keep(within)
	return within, func() { cancel(nil) }
}

func (h *Hold) keep(ctx context.Context) {
	span := h.lock.span()
	for wait := min(span, time.Until(h.Until())) / 3; ; { // Some of the lease may be over before the first one.
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		renewed, err := h.Renew(ctx)
		switch {
		case err != nil && ClassOf(driver.Reply{Err: err}) == Final:
			h.mu.Lock()
			h.failure = fmt.Errorf("%w: %w", ErrNotHeld, err)
			h.mu.Unlock()
			return
		case err != nil:
			wait = min(span/10, tryAgain)
		case renewed:
			wait = span / 3
		default:
			return
		}
	}
}
