package io.github.redislock;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/**
 * What a driver does here: it sends a command and reads the answer. Nothing outside its
 * implementations names a class of a driver, so that a program needs one driver only.
 */
interface Wire extends AutoCloseable {
    /** The pace of asking again where the server cannot do the waiting. */
    long PACE_MS = 50;

    /**
     * Sends a command once. It waits for the answer no longer than {@link AnswerTime} says. A
     * request that blocks may be answered with null before its time.
     *
     * @return a Long, a String, null, or a List or a Map of such
     */
    Object send(Request request);

    /** The answers to several commands, which are sent together where the driver can. */
    default List<Object> sendAll(List<Request> requests) {
        List<Object> replies = new ArrayList<>();
        requests.forEach(request -> replies.add(send(request)));
        return replies;
    }

    /** Asks at once for what cannot wait at the server, and pauses before the caller asks again. */
    default Object poll(Request request, Function<Request, Object> send) {
        Object reply = send.apply(request.atOnce(true));
        if (reply == null) {
            pause(Math.min(PACE_MS, request.blockMs));
        }
        return reply;
    }

    /** Ends by an interrupt, whose flag stays: the caller looks at it before it asks again. */
    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException flag) {
            Thread.currentThread().interrupt();
        }
    }

    /** The text of an error that the server gave as its answer; null for any other failure. */
    String refusal(Throwable failed);

    /** Whether no answer came, so that the server may have done the command or not. */
    boolean isOutOfReach(Throwable failed);

    /** An error of the driver's own kind. */
    RuntimeException failure(String text);

    /** Whether another server may take over within a while, as with Sentinel and in a cluster. */
    default boolean failsOver() {
        return false;
    }

    /** How often the driver has sent a command again by itself, where it lets that be seen. */
    default long resends() {
        return 0;
    }

    /** Why a hold cannot be bound to a connection; null where it can be. */
    default String whyNoLinger() {
        return null;
    }

    /** Has {@code lost} run after the connection that holds are bound to was made anew. */
    default void onReconnect(Runnable lost) {}

    @Override
    void close();
}
