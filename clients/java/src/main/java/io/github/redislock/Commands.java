package io.github.redislock;

import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Supplier;

/** The module's commands, one try each. Once {@code closed}, none is sent again. */
record Commands(Wire wire, FallbackSender sender, LockOptions options, AtomicBoolean closed) {
    static final String TTL_TOO_LONG = "ERR ttl must not be above lock.max-ttl";

    private static final long RESEND_PAUSE_MS = 50;

    Commands(Wire wire, LockOptions options) {
        this(wire, new FallbackSender(wire, options.fallback()), options, new AtomicBoolean());
    }

    /**
     * For commands that answer at once and may be sent twice, as all with a token may. Sends until
     * there is an answer, for as long as {@link LockOptions#reconnect()} and the client is open; an
     * interrupt waits for that.
     */
    <T> T resend(Supplier<T> command) {
        // A set flag would close the socket, so it is taken down and kept.
        boolean interrupted = Thread.interrupted();
        long startNanos = System.nanoTime();
        try {
            while (true) {
                try {
                    return AnswerTime.until(startNanos + options.patienceNanos(), command);
                } catch (RuntimeException failed) {
                    interrupted |= Thread.interrupted();
                    if (!passes(failed)
                            || closed.get()
                            || System.nanoTime() - startNanos
                                    > options.reconnect().toNanos()) {
                        throw failed;
                    }
                }
                pause();
                interrupted |= Thread.interrupted();
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Renews, and asks again at TRYAGAIN while {@code goesOn}; empty where that is the last. */
    Optional<Boolean> renewWhile(BooleanSupplier goesOn, BooleanSupplier renewal) {
        while (true) {
            Optional<Boolean> held = resend(() -> answered(renewal));
            if (held.isPresent() || !goesOn.getAsBoolean()) {
                return held;
            }
            pause();
        }
    }

    /** With a set flag, too. */
    private static void pause() {
        boolean interrupted = Thread.interrupted();
        Wire.pause(RESEND_PAUSE_MS);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Empty at TRYAGAIN. */
    private Optional<Boolean> answered(BooleanSupplier renewal) {
        try {
            return Optional.of(renewal.getAsBoolean());
        } catch (RuntimeException failed) {
            if (isError(failed, "TRYAGAIN")) {
                return Optional.empty();
            }
            throw failed;
        }
    }

    /** The fence, or null when the lock cannot be had at once. */
    Long tryAcquire(Claim claim, String token, long ttlMs) {
        return acquire(claim, token, ttlMs, 0, 0);
    }

    /**
     * The fence, or null when the lock was not granted within {@code blockMs}. The server keeps the
     * place in the queue for {@code keepMs} more.
     */
    Long acquire(Claim claim, String token, long ttlMs, long blockMs, long keepMs) {
        Request request = acquiring(claim, token, ttlMs, options);
        request.blockMs = blockMs;
        request.keepMs = keepMs;
        try {
            return (Long) sender.send(request);
        } catch (RuntimeException failed) {
            if (isError(failed, TTL_TOO_LONG)) {
                throw tooLong(failed);
            }
            throw isError(failed, "CROSSSLOT") ? crossSlot(claim, failed) : failed;
        }
    }

    /** Not to wait, unless more is said. */
    static Request acquiring(Claim claim, String token, long ttlMs, LockOptions options) {
        Request request = claim.several() ? several(claim) : one(claim);
        request.add(token).add(ttlMs);
        if (claim.several()) {
            request.add("MODES");
            claim.modes().forEach(request::add);
        }
        if (claim.limit() > 0) {
            request.add("LIMIT").add(claim.limit());
        }
        options.linger().ifPresent(linger -> request.lingerMs = linger.toMillis());
        return request;
    }

    private static Request one(Claim claim) {
        boolean reads = claim.modes().get(0) == Mode.SHARED;
        return new Request(reads ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE").key(claim.name());
    }

    private static Request several(Claim claim) {
        Request request = new Request("LOCK.MACQUIRE").add(claim.names().size());
        claim.names().forEach(request::key);
        return request;
    }

    /** Whether all of it was held. */
    boolean renew(Claim claim, String token, long ttlMs) {
        try {
            return ofAll(claim, name -> renewing(name, token, ttlMs));
        } catch (RuntimeException failed) {
            throw isError(failed, TTL_TOO_LONG) ? tooLong(failed) : failed;
        }
    }

    /** Whether all of it was held. */
    boolean release(Claim claim, String token) {
        return ofAll(claim, name -> releasing(name, token, 0));
    }

    /** Whether all of it was held. It ends {@code leastMs} after its grant, or now if that is past. */
    boolean release(Claim claim, String token, long leastMs) {
        try {
            return ofAll(claim, name -> releasing(name, token, leastMs));
        } catch (RuntimeException failed) {
            throw isError(failed, TTL_TOO_LONG) ? leastTooLong(failed) : failed;
        }
    }

    static Request renewing(String name, String token, long ttlMs) {
        return new Request("LOCK.RENEW").key(name).add(token).add(ttlMs);
    }

    static Request releasing(String name, String token, long leastMs) {
        Request request = new Request("LOCK.RELEASE").key(name).add(token);
        return leastMs > 0 ? request.add("ATLEAST").add(leastMs) : request;
    }

    static Request checking(String name, String token) {
        return new Request("LOCK.CHECK").key(name).add(token);
    }

    static Request guarding(String name, String token, String command, Object... words) {
        Request request = new Request("LOCK.EXEC").key(name).add(token).add(command);
        for (Object word : words) {
            request.add(word);
        }
        return request;
    }

    /** Whether all of it is held, as the server says. */
    boolean check(Claim claim, String token) {
        return replies(claim, name -> checking(name, token)).stream()
                .allMatch(Long.class::isInstance);
    }

    /** Runs a command while the lock is held; not to be sent twice. */
    Object exec(String name, String token, String command, Object... words) {
        return sender.send(guarding(name, token, command, words));
    }

    private boolean ofAll(Claim claim, Function<String, Request> command) {
        return replies(claim, command).stream().allMatch(Commands::isOne);
    }

    private static boolean isOne(Object reply) {
        return reply instanceof Long number && number == 1;
    }

    /** One command per key, sent together. */
    private List<Object> replies(Claim claim, Function<String, Request> command) {
        try {
            if (claim.names().size() == 1) {
                return Collections.singletonList(sender.send(command.apply(claim.name())));
            }
            return wire.sendAll(claim.names().stream().map(command).toList());
        } catch (RuntimeException failed) {
            if (isForeign(failed)) {
                // What was written over the key has ended the hold.
                return Collections.singletonList(null);
            }
            throw failed;
        }
    }

    /** How the lock is held: {@code exclusive}, {@code shared} or {@code free}. */
    String mode(String name) {
        return info(name).getOrDefault("mode", "free").toString();
    }

    /** How many permits of a semaphore are held. */
    int holders(String name) {
        Map<String, Object> info = info(name);
        if (sender.isFallback()) {
            throw Fallback.lacks(Fallback.SEMAPHORE);
        }
        return info.get("holders") instanceof List<?> holders ? holders.size() : 0;
    }

    /** False where the user may not ask. A release gives the place up all the same. */
    boolean isWaiting(String name, String token) {
        try {
            return isWaitingNow(name, token);
        } catch (RuntimeException failed) {
            if (isError(failed, "NOPERM")) {
                return false;
            }
            throw failed;
        }
    }

    private boolean isWaitingNow(String name, String token) {
        return info(name).getOrDefault("waiters", List.of()) instanceof List<?> waiters
                // The replies of RESP2 are flat lists and those of RESP3 maps: the token is in
                // either.
                && waiters.stream().anyMatch(waiter -> waiter.toString().contains(token));
    }

    private Map<String, Object> info(String name) {
        Map<String, Object> info = fields(sender.send(new Request("LOCK.INFO").key(name)));
        if (isCut(info, "holder") || isCut(info, "waiter")) {
            Request all = new Request("LOCK.INFO").key(name);
            all.add("HOLDERS").add(Long.MAX_VALUE).add("WAITERS").add(Long.MAX_VALUE);
            return fields(sender.send(all));
        }
        return info;
    }

    /** Unless asked for more, the module shows the first 1,000. */
    private static boolean isCut(Map<String, Object> info, String party) {
        return info.get(party + "-count") instanceof Long count
                && info.get(party + "s") instanceof List<?> shown
                && shown.size() < count;
    }

    private static Map<String, Object> fields(Object reply) {
        Map<String, Object> info = new HashMap<>();
        if (reply instanceof Map<?, ?> map) {
            map.forEach((key, value) -> info.put(key.toString(), value));
        } else if (reply instanceof List<?> flat) {
            for (int at = 0; at + 1 < flat.size(); at += 2) {
                info.put(flat.get(at).toString(), flat.get(at + 1));
            }
        }
        return info;
    }

    /** How long a lock of another kind is there at most; below 0 where that cannot be known. */
    long foreignMs(String name) {
        try {
            return resend(() -> ttlMs(name));
        } catch (RuntimeException failed) {
            if (isError(failed, "NOPERM")) {
                return -1;
            }
            throw failed;
        }
    }

    long ttlMs(String name) {
        return (Long) sender.send(new Request("PTTL").key(name));
    }

    boolean delete(String name) {
        return isOne(sender.send(new Request("DEL").key(name)));
    }

    /**
     * Whether the server was out of reach, or is only just starting, moving a slot or changing its
     * role.
     */
    boolean passes(RuntimeException failed) {
        return wire.isOutOfReach(failed) || passes(refusal(failed));
    }

    /** Whether an error says that the server, or another one, will do the same command later. */
    static boolean passes(String error) {
        // A driver for a cluster sends a command on until it has had enough of it.
        String codes = "UNBLOCKED|TRYAGAIN|LOADING|MASTERDOWN|CLUSTERDOWN|READONLY|NOREPLICAS|MOVED|ASK";
        return error != null && error.matches("(?s)(" + codes + ")\\b.*");
    }

    /**
     * Whether an error says that the server is not the primary any more. It closes nothing then, so
     * its connections have to be left for those of another one.
     */
    static boolean isDemoted(String error) {
        return error != null && (error.startsWith("READONLY") || error.startsWith("UNBLOCKED"));
    }

    /** The server's text, or null where the failure is not its answer. */
    private String refusal(Throwable failed) {
        return wire.refusal(failed);
    }

    boolean isOutOfReach(RuntimeException failed) {
        return wire.isOutOfReach(failed);
    }

    /**
     * Whether somebody else's kind of lock is on the key: an old client's string, or the hash of
     * Redisson.
     */
    boolean isForeign(RuntimeException failed) {
        return isError(failed, "WRONGTYPE");
    }

    boolean isError(RuntimeException failed, String code) {
        String error = refusal(failed);
        return error != null && error.startsWith(code);
    }

    /** The server bounds its leases. */
    static IllegalArgumentException tooLong(Throwable failed) {
        return new IllegalArgumentException(
                "the lease (LockOptions.ttl where none is given, lockAtMostFor of a job) is too"
                        + " long: "
                        + failed.getMessage(),
                failed);
    }

    /** The same bound counts for the least time. */
    static IllegalArgumentException leastTooLong(Throwable failed) {
        return new IllegalArgumentException("atLeast is too long: " + failed.getMessage(), failed);
    }

    static IllegalArgumentException crossSlot(Claim claim, Throwable failed) {
        return new IllegalArgumentException(
                "in a cluster the keys of a multi-lock must have one slot, as {orders}:1 and"
                        + " {orders}:2 have: "
                        + claim.title(),
                failed);
    }
}
