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
	renewed, _, err := h.renew(ctx)
	return renewed, err
}

func (h *Hold) renew(ctx context.Context) (renewed bool, class Class, err error) {
	h.asking <- struct{}{}
	defer func() { <-h.asking }()
	if h.token == "" || h.isOver() {
		return false, Answered, nil
	}
	reply, sent, _ := h.insist(ctx, h.Until(), min(Margin, h.lock.span()/3), h.sendRenewal)
	class = ClassOf(reply)
	switch {
	case class == Answered && number(reply) == 1:
		return h.heard(sent, true), class, nil // A release may have come between.
	case class == Answered:
		h.finish(true)
		return false, class, nil
	case h.isOver():
		return false, class, nil
	}
	return false, class, h.trouble(ctx, "LOCK.RENEW", reply)
}

// sendRenewal sends a renewal once. That of a hold that lingers goes over its own connection, and proves that this lives. If it has
// broken, the hold is bound to another one.
func (h *Hold) sendRenewal(ctx context.Context) driver.Reply {
	commands := h.commands("LOCK.RENEW", h.lock.Expiry.Milliseconds())
	if !h.lingers() {
		return merged(h.lock.Client.send(ctx, commands...))
	}
	h.mu.Lock()
	conn := h.conn
	h.mu.Unlock()
	if conn == nil {
		return h.bind(ctx, commands)
	}
	// The end of the caller's context would close the connection.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(Margin, h.lock.span()/3))
	defer cancel()
	reply := merged(conn.Send(within, commands...))
	if Leaves(reply) {
		h.unbind(conn)
		return h.bind(ctx, commands)
	}
	return reply
}

// bind renews a hold over a new connection, and binds the hold to that, which only an acquire does. A renewal that has succeeded counts
// for the linger in any case: the server sees the end of another connection later, if it has not yet.
func (h *Hold) bind(ctx context.Context, commands []driver.Command) driver.Reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Margin)
	defer cancel()
	conn, err := h.lock.Client.Driver.Open(ctx, h.lock.Names[0])
	if err != nil {
		return merged(h.lock.Client.send(ctx, commands...))
	}
	renewed := merged(conn.Send(ctx, commands...))
	if number(renewed) == 0 || h.lock.Sides != nil && !h.lock.Sides.TryLock() { // The next renewal binds.
		dispose(conn, renewed)
		return renewed
	}
	if h.lock.Sides != nil {
		defer h.lock.Sides.Unlock()
	}
	if h.isOver() { // It was converted meanwhile, or released.
		dispose(conn, renewed)
		return renewed
	}
	answer := conn.Send(ctx, h.lock.request(h.token))[0]
	h.mu.Lock()
	same := number(answer) == h.fence
	bound := same && h.overAt.IsZero()
	if bound {
		h.conn = conn
	}
	h.mu.Unlock()
	switch {
	case bound:
	case same:
		conn.Close()
	case number(answer) != 0: // It was lost since its renewal, and nobody knows of this one.
		conn.Send(ctx, h.commands("LOCK.RELEASE")...)
		conn.Close()
		renewed.Value = int64(0)
	default: // A guard says null to any acquire.
		dispose(conn, answer)
		if says(answer.Err, "WRONGTYPE") || says(answer.Err, "PARTIAL") {
			renewed.Value = int64(0)
		}
	}
	return renewed
}

// unbind closes a connection that has broken.
func (h *Hold) unbind(conn driver.Conn) {
	h.mu.Lock()
	if h.conn == conn {
		h.conn = nil
	}
	h.mu.Unlock()
	conn.Close()
}

// watch asks for a sign of life on the connection of a hold that lingers whenever there has been none for a third of the linger.
func (h *Hold) watch() {
	third := h.lock.Linger / 3
	for wait := third; ; {
		sleep(h.life, max(wait, time.Millisecond))
		if h.life.Err() != nil {
			return
		}
		h.asking <- struct{}{} // A renewal that has come between has heard of the connection.
		h.mu.Lock()
		conn, due := h.conn, time.Since(h.known) >= third
		h.mu.Unlock()
		if conn != nil && due {
			sent := time.Now()
			within, cancel := context.WithDeadline(context.Background(), h.Until())
			reply := conn.Send(within, driver.Command{Args: []any{"PING"}})[0]
			cancel()
			if ClassOf(reply) == Unheard {
				h.unbind(conn)
			} else {
				h.heard(sent, false)
			}
		}
		h.mu.Lock()
		wait = third
		if h.conn != nil {
			wait = time.Until(h.known.Add(third))
		}
		h.mu.Unlock()
		<-h.asking
	}
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
	wait := span / 3
	if until := h.Until(); !until.IsZero() { // Some of the lease may be over before the first one.
		wait = max(min(span, time.Until(until)), 0) / 3
	}
	for {
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		renewed, class, err := h.renew(ctx)
		switch {
		case class == Final && err != nil:
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
