package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** Says when the server has no module, and does without it where that is wanted. */
final class FallbackSender {
    private final Wire wire;
    private final Fallback fallback;

    FallbackSender(Wire wire, boolean allowed) {
        this.wire = wire;
        this.fallback = new Fallback(allowed);
    }

    /** Whether what was sent has shown that the server has no module. */
    boolean isFallback() {
        return fallback.isUsed();
    }

    Object send(Request request) {
        if (!Fallback.isOurs(request)) {
            return wire.send(request);
        }
        if (fallback.isUsed()) {
            return sendInstead(request);
        }
        try {
            Object reply = wire.send(request);
            fallback.sawModule();
            return reply;
        } catch (RuntimeException failed) {
            if (!Fallback.isUnknown(request, wire.refusal(failed))) {
                throw failed;
            }
            if (hasModule(request)) {
                throw Fallback.unsupported(request, failed);
            }
            if (!fallback.begin()) {
                throw Fallback.missing(failed);
            }
        }
        return sendInstead(request);
    }

    /** Whether the server only lacks this command. */
    private boolean hasModule(Request request) {
        // Of a token that holds nothing.
        Request probe = Commands.releasing(name(request), UUID.randomUUID().toString(), 0);
        try {
            wire.send(probe);
            return true;
        } catch (RuntimeException failed) {
            return !Fallback.isUnknown(probe, wire.refusal(failed));
        }
    }

    private static String name(Request request) {
        return new String(request.firstKey(), StandardCharsets.UTF_8);
    }

    private Object sendInstead(Request request) {
        Request instead = Fallback.instead(request);
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.blockMs);
        while (true) {
            Object reply = Fallback.reply(request, wire.send(instead));
            long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
            if (reply != null || leftMs <= 0) {
                return reply;
            }
            Wire.pause(Math.min(leftMs, Fallback.pauseMs()));
            if (Thread.currentThread().isInterrupted()) {
                return null;
            }
        }
    }
}
