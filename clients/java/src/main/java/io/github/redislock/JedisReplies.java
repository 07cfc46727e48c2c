package io.github.redislock;

import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.*;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** What all ways to use Jedis have in common, of its versions 5 to 8. */
abstract class JedisReplies extends Driver {
    JedisReplies(boolean failsOver, boolean keepsOne) {
        super(true, failsOver, keepsOne);
    }

    @Override
    public String refusal(Throwable failed) {
        return failed instanceof JedisDataException ? failed.getMessage() : null;
    }

    @Override
    public boolean isOutOfReach(Throwable failed) {
        return failed instanceof JedisConnectionException
                || failed instanceof JedisClusterOperationException
                // Retries of its own came to nothing, or no time was left for one.
                || (failed instanceof JedisException
                        && (Stream.of(failed.getSuppressed()).anyMatch(this::isOutOfReach)
                                // Or its pool could not take the broken connection back.
                                || isOutOfReach(failed.getCause())
                                || "Retry deadline exceeded.".equals(failed.getMessage())));
    }

    /** Done when this returns, also where it fails. */
    static <T> CompletableFuture<T> done(Supplier<T> action) {
        return CompletableFuture.supplyAsync(action, Runnable::run);
    }

    /** The replies to all of them, as of a pipeline, or the first refusal. */
    static List<Object> all(List<Request> requests, Function<Request, Object> answer) {
        List<Object> replies = new ArrayList<>();
        JedisDataException refused = null;
        for (Request request : requests) {
            try {
                replies.add(answer.apply(request));
            } catch (JedisDataException refusal) {
                refused = refused == null ? refusal : refused;
            }
        }
        if (refused != null) {
            throw refused;
        }
        return replies;
    }

    static byte[][] words(Request request) {
        return request.words().toArray(byte[][]::new);
    }

    static ProtocolCommand name(Request request) {
        byte[] name = Request.bytes(request.command);
        return () -> name;
    }

    /** With strings for bytes, unless bytes are wanted. */
    static Object plain(Request request, Object reply) {
        return request.isRaw ? reply : BuilderFactory.AGGRESSIVE_ENCODED_OBJECT.build(reply);
    }
}
