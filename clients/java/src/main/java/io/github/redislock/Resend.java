package io.github.redislock;

import redis.clients.jedis.exceptions.JedisException;

import java.util.function.Supplier;

/** For commands that answer at once and may be sent twice, as all with a token may. */
final class Resend {
    private static final long PAUSE_MS = 50;

    private Resend() {}

    /**
     * Sends until there is an answer, for as long as {@link LockOptions#reconnect()}; an interrupt
     * waits for that.
     */
    static <T> T once(LockOptions options, Supplier<T> command) {
        // A set flag would close the socket, so it is taken down and kept.
        boolean interrupted = Thread.interrupted();
        long startNanos = System.nanoTime();
        try {
            while (true) {
                try {
                    return AnswerTime.until(startNanos + options.patienceNanos(), command);
                } catch (JedisException failed) {
                    interrupted |= Thread.interrupted();
                    if (!Commands.passes(failed)
                            || System.nanoTime() - startNanos > options.reconnect().toNanos()) {
                        throw failed;
                    }
                }
                try {
                    Thread.sleep(PAUSE_MS);
                } catch (InterruptedException flag) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
