package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** Says when the server has no module, and does without it where that is wanted. */
final class FallbackWire implements Wire {
    private final Wire wire;
    private final Fallback fallback;

    FallbackWire(Wire wire, boolean allowed) {
        this.wire = wire;
        this.fallback = new Fallback(allowed);
    }

    @Override
    public Object send(Request request) {
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
            if (!Fallback.isUnknown(wire.refusal(failed)) || isOlder(request)) {
                throw failed;
            }
            if (!fallback.begin()) {
                throw Fallback.missing(failed);
            }
        }
        return sendInstead(request);
    }

    /** Whether the server has a module that only lacks this command. */
    private boolean isOlder(Request request) {
        if (Fallback.isBasic(request)) {
            return false;
        }
        try {
            // Of a token that holds nothing.
            wire.send(Commands.releasing(name(request), UUID.randomUUID().toString(), 0));
            return true;
        } catch (RuntimeException failed) {
            return !Fallback.isUnknown(wire.refusal(failed));
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
            try {
                Thread.sleep(Math.min(leftMs, Fallback.pauseMs()));
            } catch (InterruptedException flag) {
                Thread.currentThread().interrupt(); // The caller looks at it before it asks again.
                return null;
            }
        }
    }

    @Override
    public List<Object> sendAll(List<Request> requests) {
        return fallback.isUsed() ? Wire.super.sendAll(requests) : wire.sendAll(requests);
    }

    @Override
    public String refusal(Throwable failed) {
        return wire.refusal(failed);
    }

    @Override
    public boolean isOutOfReach(Throwable failed) {
        return wire.isOutOfReach(failed);
    }

    @Override
    public RuntimeException failure(String text) {
        return wire.failure(text);
    }

    @Override
    public boolean failsOver() {
        return wire.failsOver();
    }

    @Override
    public String whyNoLinger() {
        return wire.whyNoLinger();
    }

    @Override
    public void onReconnect(Runnable news) {
        wire.onReconnect(news);
    }

    @Override
    public void close() {
        wire.close();
    }
}
