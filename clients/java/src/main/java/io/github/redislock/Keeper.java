package io.github.redislock;

import java.util.List;
import java.util.Set;
import java.util.concurrent.*;
import java.util.function.*;

/**
 * Looks after what is held: renews it, sees its end, tells of its loss, and binds it to the next
 * connection. What is sent for one hold goes out one after the other.
 */
final class Keeper {
    static final String GONE = "the server says that it is over";
    static final String ENDED = "its lease ended";
    static final String NOT_RENEWED = "no renewal came through before its lease ended";
    static final String NO_WRITER = "it ended while it waited to become the writer";
    static final String CUT = "its connection was out of reach for longer than it lingers";

    /** A renewal that failed is tried again after a twentieth of the ttl, or of this. */
    private static final long MOST_TTL_MS = 4_000;

    private final Engine engine;
    private final Set<Hold> holds = ConcurrentHashMap.newKeySet();

    Keeper(Engine engine) {
        this.engine = engine;
    }

    /** Whether the connection that its end was bound to is lost: a renewal binds it to the next. */
    private boolean isUnbound(Hold hold) {
        return !hold.lease.isBoundTo(engine.driver.pulse);
    }

    /** Begins to look after a hold whose lease has just begun. */
    void watch(Hold hold) {
        if (hold.isOver() || engine.closed) {
            return;
        }
        holds.add(hold);
        boolean unbound = isUnbound(hold);
        long leftNanos = unbound ? hold.lease.leftNanos() : hold.lease.ttlLeftNanos();
        long nextNanos = Math.max(0, Math.min(engine.options.ttl().toNanos(), leftNanos)) / 3;
        renewIn(hold, unbound || hold.renewed ? nextNanos : Acquire.ENDLESS);
    }

    private void renewIn(Hold hold, long delayNanos) {
        hold.renewalNanos = System.nanoTime() + delayNanos;
        look(hold);
    }

    /** Looks at it again at the time of its renewal, or just after its end if that is sooner. */
    private void look(Hold hold) {
        long endNanos = Math.max(0, hold.lease.leftNanos()) + 1;
        long renewalNanos = hold.renewalNanos - System.nanoTime();
        hold.plan(engine.at(Math.min(endNanos, renewalNanos), () -> {
            if (hold.isOver() || hold.releasing) {
                return;
            }
            if (!hold.lasts()) {
                lose(hold, reason(hold));
            } else if (hold.renewalNanos - System.nanoTime() <= 0) {
                renewIn(hold, Acquire.ENDLESS);
                engine.work(() -> hold.inTurn(() -> renewNow(hold)));
            } else {
                look(hold); // Begun anew meanwhile.
            }
        }));
    }

    private static String reason(Hold hold) {
        if (hold.lease.ttlLeftNanos() > 0) {
            return CUT;
        }
        return hold.renewed ? NOT_RENEWED : ENDED;
    }

    private CompletableFuture<Void> renewNow(Hold hold) {
        // Who is dead cannot unlock; renewing for it would lock everybody out for ever.
        boolean renewed =
                hold.renewed && (hold.handedOn || hold.owner == null || hold.owner.isAlive());
        if (hold.isOver() || hold.releasing || (!isUnbound(hold) && !renewed)) {
            return Engine.done(null);
        }
        long leaseMs = leaseMs(hold);
        boolean binds = isUnbound(hold) && !hold.converting;
        return (binds ? takeAgain(hold, hold.claimNow(), leaseMs) : renewOnce(hold, leaseMs))
                .handle((held, failed) -> {
                    if (failed != null) {
                        long ttlMs = Math.min(engine.ttlMs(), MOST_TTL_MS);
                        renewIn(hold, TimeUnit.MILLISECONDS.toNanos(ttlMs) / 20);
                    } else if (!held) { // Unless its owner released it while this was on its way.
                        lose(hold, !hold.lasts() ? reason(hold) : GONE);
                    } else {
                        watch(hold);
                    }
                    return null;
                });
    }

    /** False when it is over, by the server's word or by the client's clock. */
    private CompletableFuture<Boolean> renewOnce(Hold hold, long leaseMs) {
        long sent = hold.lease.sends(leaseMs);
        return engine.renew(hold, leaseMs).thenApply(held -> {
            // By then another request may have begun it anew, and a conversion may get a new hold.
            boolean counts = !held || hold.lease.answered(sent);
            boolean late = !counts && hold.isEnded() && !hold.converting;
            if (late) { // Nobody would ever unlock it.
                engine.giveUp(hold.claim, hold.token, hold.leastMsAtItsEnd());
            }
            return held && !late;
        });
    }

    /** What to ask for: the ttl where it is renewed, but no less than is left. */
    private long leaseMs(Hold hold) {
        return Math.max(hold.renewed ? engine.ttlMs() : 0, hold.lease.leftMs());
    }

    /**
     * Asks for what is held already, in this way: that binds it to the connection that there is
     * now, and without KEEP also ends a place that nobody listens for.
     */
    private CompletableFuture<Boolean> takeAgain(Hold hold, Claim claim, long leaseMs) {
        long sent = hold.lease.sends(leaseMs);
        Lease.Pulse pulse = engine.driver.pulse;
        Request request = Request.acquiring(claim, hold.token, leaseMs, engine.options);
        return engine.send(request)
                .thenCompose(reply -> {
                    if (reply == null) { // A guard says so to one that has it, too.
                        return renewOnce(hold, leaseMs);
                    }
                    boolean same = reply.equals(hold.fence);
                    if (same && hold.lease.answered(sent) && !hold.isEnded()) {
                        hold.lease.bind(pulse);
                        return Engine.done(true);
                    }
                    long leastMs = same ? hold.leastMsAtItsEnd() : 0; // Nobody asked for another.
                    return engine.giveUp(hold.claim, hold.token, leastMs)
                            .handle((was, cut) -> false);
                })
                .exceptionallyCompose(
                        failed -> isGone(failed) ? Engine.done(false) : Engine.failed(failed));
    }

    /** The connection that the holds are bound to is another one now. */
    void rebindAll() {
        holds.forEach(hold -> engine.work(() -> hold.inTurn(() -> renewNow(hold))));
    }

    /** Proves again and again that the connection that holds are bound to lives. */
    void beat(long delayNanos) {
        long beatNanos = TimeUnit.MILLISECONDS.toNanos(engine.lingerMs()) / 4;
        engine.later(delayNanos, () -> {
            if (!engine.closed) {
                engine.send(new Request("PING"))
                        .whenComplete((pong, failed) -> // With a new connection, soon.
                                beat(failed == null ? beatNanos : Engine.PACE_NANOS / 2));
            }
        });
    }

    /** Sets a lease by its owner's will; false when it was lost. Nobody renews it from then on. */
    CompletableFuture<Boolean> set(Hold hold, long leaseMs) {
        return hold.inTurn(() -> {
            if (hold.isEnded()) {
                lose(hold, reason(hold)); // Unless the clock was quicker.
                return Engine.done(false);
            }
            boolean before = hold.renewed;
            hold.renewed = false;
            return prolonged(hold, leaseMs, true).whenComplete((held, failed) -> {
                if (failed != null) {
                    hold.renewed = before; // Its owner relies on that, as no lease was set.
                    watch(hold);
                }
            });
        });
    }

    /** Asks the server if a hold is still there, and for as much time as a nested lock wants. */
    CompletableFuture<Boolean> prolong(Hold hold, long leaseMs) {
        return hold.inTurn(() -> {
            hold.renewed |= leaseMs == Lease.RENEWED;
            long leftMs = hold.lease.leftMs();
            // Where the server renews nothing for a while, its owner works on.
            boolean insists = !hold.renewed && leaseMs > leftMs;
            long wantedMs = Math.max(hold.renewed ? engine.ttlMs() : leaseMs, leftMs);
            return prolonged(hold, wantedMs, insists);
        });
    }

    /**
     * The same, again where that helps. What is only refused for a while is asked again if it
     * {@code insists}; otherwise what is left of the lease will do.
     */
    private CompletableFuture<Boolean> prolonged(Hold hold, long leaseMs, boolean insists) {
        return engine.again(() -> renewOnce(hold, leaseMs), () -> insists && hold.lasts())
                .exceptionallyCompose(failed ->
                        Replies.kind(engine.refusal(failed)) != Replies.Kind.FINAL
                                ? Engine.done(hold.lasts())
                                : Engine.failed(failed))
                .thenApply(held -> {
                    if (held) {
                        watch(hold);
                    } else {
                        lose(hold, GONE);
                    }
                    return held && !hold.isOver();
                });
    }

    /** Makes a reader of a writer, or of one that may have become it unseen; false when lost. */
    CompletableFuture<Boolean> restoreReader(Hold hold, String reason) {
        Claim shared = Claim.one(hold.claim.name(), Claim.Mode.SHARED);
        long leaseMs = leaseMs(hold);
        hold.unconfirmed = true;
        return engine.again(() -> takeAgain(hold, shared, leaseMs), hold::lasts)
                .thenApply(held -> {
                    if (held) {
                        hold.unconfirmed = false;
                        watch(hold);
                    } else {
                        lose(hold, reason);
                    }
                    return held;
                });
    }

    /**
     * Gives a hold back, to end {@code leastMs} after its grant, or now if that is past; false when
     * it was lost. After a failure it is held and renewed as before, so that this can be tried
     * again. A time that the server does not allow is an error, too; it is given back at once then.
     */
    CompletableFuture<Boolean> release(Hold hold, long leastMs) {
        return releases(hold, () -> released(hold, leastMs).exceptionallyCompose(failed -> {
            CompletableFuture<Boolean> failing = Engine.failed(failed);
            return !isRefusedTime(failed) ? failing : released(hold, 0).thenCompose(any -> {
                forget(hold);
                return failing;
            });
        }));
    }

    /** The same where nobody will try it again: nothing renews it any more, and what fails goes on. */
    CompletableFuture<Boolean> releaseAtLast(Hold hold) {
        hold.renewed = false;
        return release(hold, hold.leastMs).whenComplete((held, failed) ->
                engine.goOn(hold.claim, hold.token, hold.leastMs, 1_000, failed));
    }

    /** The same, to end {@code restMs} from now. */
    CompletableFuture<Boolean> releaseIn(Hold hold, long restMs) {
        return releases(hold, () -> released(hold, hold.lease.sinceAskedMs() + restMs)
                .exceptionallyCompose(failed -> isRefusedTime(failed)
                        // The rest alone is not above the bound, nor does it need the module.
                        ? engine.again(() -> engine.renew(hold, restMs), hold::lasts)
                        : Engine.failed(failed)));
    }

    private static boolean isRefusedTime(Throwable failed) {
        Throwable cause = Engine.cause(failed);
        return cause instanceof IllegalArgumentException
                || cause instanceof ModuleMissingException;
    }

    /**
     * Has the server write what was made under a hold, and ends that, in one pipeline. What comes
     * too late is not written: another one may have made it since. Sent again it finds no hold.
     */
    CompletableFuture<Void> store(Hold hold, Request save) {
        List<Request> both = List.of(save, Request.releasing(hold.claim.name(), hold.token, 0));
        boolean[] failedBefore = {false}; // So the release may have been done.
        return releases(hold, () -> engine.again(
                                () -> engine.sendAll(both, engine.answerEnd())
                                        .whenComplete((stored, failed) -> failedBefore[0] |=
                                                failed != null && !isGone(failed)),
                                hold::lasts)
                        .thenApply(stored -> true))
                .handle((stored, failed) -> {
                    if (failed == null) {
                        return null;
                    }
                    if (isGone(failed) && !failedBefore[0]) {
                        lose(hold, GONE);
                    }
                    forget(hold);
                    engine.goOn(hold.claim, hold.token, 0, 1_000, failed);
                    boolean refused = engine.refusal(failed) != null; // Not an exhausted pool.
                    if (refused && !isGone(failed) && engine.kind(failed) == Replies.Kind.FINAL) {
                        throw Engine.thrown(Engine.cause(failed));
                    }
                    return null;
                });
    }

    private boolean isGone(Throwable failed) {
        String word = Replies.word(engine.refusal(failed));
        return Set.of("NOTHELD", "WRONGTYPE", "PARTIAL").contains(word);
    }

    /** Ends a hold under which nothing came about, so that the next one begins at once. */
    CompletableFuture<Void> abandon(Hold hold) {
        return releaseAtLast(hold).handle((held, failed) -> {
            forget(hold);
            return null;
        });
    }

    private CompletableFuture<Boolean> released(Hold hold, long leastMs) {
        return engine.release(hold.claim, hold.token, leastMs, hold::lasts);
    }

    private CompletableFuture<Boolean> releases(
            Hold hold, Supplier<CompletableFuture<Boolean>> release) {
        hold.releasing = true; // Nothing renews it from now on, or it would undo a least time.
        return hold.inTurn(() -> {
            if (hold.isOver()) {
                return Engine.done(false);
            }
            return release.get().whenComplete((held, failed) -> {
                hold.releasing = false;
                if (failed == null) {
                    forget(hold);
                } else {
                    watch(hold);
                }
            });
        });
    }

    private void forget(Hold hold) {
        hold.end(true);
        holds.remove(hold);
    }

    void lose(Hold hold, String reason) {
        if (hold.end(false)) {
            holds.remove(hold);
            if (!hold.converting) { // By that its token may get a new hold.
                // The others of several, or what a renewal on its way would leave to nobody.
                long leastMs = hold.leastMsAtItsEnd();
                engine.work(() -> engine.giveUp(hold.claim, hold.token, leastMs));
            }
            engine.tellLost(hold, reason);
        }
    }

    /** A job's hold is given back no sooner than so long after its grant, which needs the module. */
    CompletableFuture<Boolean> beginJob(Hold hold, long leastMs) {
        if (hold.fence == 0 && leastMs > 0) {
            // Whatever the release says: it must not run, also where its lease is over by now.
            return release(hold, 0)
                    .thenCompose(any -> Engine.failed(Fallback.lacks(Fallback.LEAST_TIME)));
        }
        hold.leastMs = leastMs;
        return Engine.done(true);
    }

    /** Gives a job's lock back. A loss is no error here: it is told as any other is, and once. */
    CompletableFuture<Void> endJob(Hold hold) {
        if (hold.isEnded()) {
            lose(hold, reason(hold)); // Unless the clock was quicker.
            return Engine.done(null);
        }
        return releaseAtLast(hold).thenAccept(held -> {
            if (!held) {
                engine.tellLost(hold, GONE);
            }
        });
    }

    /** Whether the server says that it is held, while the lease lasts. */
    CompletableFuture<Boolean> check(Hold hold) {
        return engine.again(() -> engine.ofAll(
                        hold.claim, name -> Request.ofHold("LOCK.CHECK", name, hold.token)))
                .thenApply(held -> {
                    if (!held) {
                        lose(hold, GONE);
                    }
                    return !hold.isEnded();
                });
    }

    /** Runs a command while it is held; not to be sent twice. */
    CompletableFuture<Object> exec(Hold hold, String command, Object... arguments) {
        if (hold.isEnded()) {
            return Engine.failed(Replies.notHeld(hold.claim));
        }
        Request request = Request.ofHold("LOCK.EXEC", hold.claim.name(), hold.token, command);
        List.of(arguments).forEach(request::add);
        return engine.send(request).exceptionallyCompose(failed -> {
            // A wrong type may be the lock's, or the command's.
            CompletableFuture<Boolean> held = engine.isError(failed, "WRONGTYPE")
                    ? check(hold).exceptionally(unknown -> true)
                    : Engine.done(!engine.isError(failed, "NOTHELD"));
            return held.thenCompose(still -> {
                if (!still) {
                    lose(hold, GONE);
                }
                return Engine.failed(
                        still ? Engine.cause(failed) : Replies.notHeld(hold.claim));
            });
        });
    }
}
