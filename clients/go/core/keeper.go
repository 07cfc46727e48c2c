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
	reply, _ := h.insist(ctx, h.Until(), h.sendRenewal)
	if reply.Err == nil && number(reply) == 0 {
		h.finish(true)
	}
	if h.isOver() { // A release may have come between, too.
		return false, nil
	}
	return reply.Err == nil, reply.Err
}

// sendRenewal sends a renewal once, unless the hold is over. That of a hold that lingers goes over its own connection, and proves that
// this lives. If it has broken, the hold is bound to another one. A renewal that has succeeded counts for the linger in any case: the server
// sees the end of a connection later, if it has not yet.
func (h *Hold) sendRenewal(ctx context.Context) driver.Reply {
	if !h.turn(ctx) {
		return driver.Reply{Err: fmt.Errorf("%w: %w", driver.ErrNotSent, context.Cause(ctx))}
	}
	defer func() { <-h.asking }()
	switch {
	case h.isOver():
		return driver.Reply{Value: int64(0)}
	case !h.lingers():
		return h.renewal(ctx, h.lock.Client.Driver)
	}
	ctx = context.WithoutCancel(ctx) // The end of the caller's context would close the connection.
	if h.conn != nil {
		within, cancel := context.WithTimeout(ctx, min(Margin, h.lock.span()/3))
		defer cancel()
		if reply := h.renewal(within, h.conn); !Leaves(reply) {
			return reply
		}
		h.conn.Close()
		h.conn = nil
	}
	within, cancel := context.WithTimeout(ctx, Margin)
	defer cancel()
	reply := h.renewal(within, h.lock.Client.Driver)
	if number(reply) == 1 && h.modes.TryLock() {
		h.bind(within)
		h.modes.Unlock()
	}
	return reply
}

// renewal sends a renewal over one of both, and notes its success.
func (h *Hold) renewal(ctx context.Context, over sender) driver.Reply {
	sent := time.Now()
	reply := h.send(ctx, over, "LOCK.RENEW", h.lock.Expiry.Milliseconds())
	if number(reply) == 1 {
		h.heard(sent, true)
	}
	return reply
}

// bind has a hold that was renewed just now depend on a new connection, which only an acquire does. If that gets nothing, as under a
// guard, which says null to any acquire, the next renewal binds the hold.
func (h *Hold) bind(ctx context.Context) {
	if h.isOver() {
		return
	}
	conn, err := h.lock.Client.Driver.Open(ctx, h.lock.Names[0])
	if err != nil {
		return
	}
	reply := conn.Send(ctx, h.lock.request(h.token))[0]
	switch fence := number(reply); {
	case fence == h.fence:
		h.depend(conn)
	case fence != 0: // It was lost since its renewal, and nobody knows of this one.
		h.send(ctx, conn, "LOCK.RELEASE")
		conn.Close()
		h.finish(true)
	default:
		conn.Release()
		if says(reply.Err, "WRONGTYPE") || says(reply.Err, "PARTIAL") {
			h.finish(true)
		}
	}
}

// watch asks for a sign of life on the connection of a hold that lingers, every third of the linger. A renewal that waits for the answer
// has time for another connection.
func (h *Hold) watch() {
	third := h.lock.Linger / 3
	for sleep(h.life, third); h.life.Err() == nil; sleep(h.life, third) {
		h.asking <- struct{}{}
		ctx, cancel := context.WithTimeout(context.Background(), third)
		sent := time.Now()
		if h.conn != nil && ClassOf(h.conn.Send(ctx, driver.Command{Args: []any{"PING"}})[0]) != Unheard {
			h.heard(sent, false)
		}
		cancel()
		<-h.asking
	}
}

// Keep renews the hold at a third of its expiry, or of its linger, in the background. It returns a context that ends when the hold is
// over: its cause is an [ErrNotHeld] then. stop ends the renewals and the context. It does not release.
//
// An error that is final ends the renewals, and is wrapped by the cause when the lease is over.
func (h *Hold) Keep(ctx context.Context) (within context.Context, stop context.CancelFunc) {
	within, stop = h.Context(ctx)
	go h.keep(within)
	return within, stop
}

func (h *Hold) keep(ctx context.Context) {
	span := h.lock.span()
	wait := min(span, time.Until(h.Until())) / 3 // Some of the lease may be over before the first one.
	for sleep(ctx, wait); ctx.Err() == nil; sleep(ctx, wait) {
		wait = span / 3
		if _, err := h.Renew(ctx); err != nil && ClassOf(driver.Reply{Err: err}) == Final {
			h.mu.Lock()
			h.failure = fmt.Errorf("%w: %w", ErrNotHeld, err)
			h.mu.Unlock()
			return
		} else if err != nil {
			wait = min(span/10, tryAgain)
		}
	}
}
