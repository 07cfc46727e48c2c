package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;

import java.util.ArrayList;
import java.util.List;

/** Commands over connections of Jedis, each with the time-out that it needs. */
final class JedisConnectionWire extends JedisWire {
    private final JedisConnections connections;
    private final int answerMs;
    private final boolean failsOver;

    /** With the pool of an application it {@code failsOver}, as that may have a Sentinel. */
    JedisConnectionWire(JedisConnections connections, int answerMs, boolean failsOver) {
        this.connections = connections;
        this.answerMs = answerMs;
        this.failsOver = failsOver;
    }

    @Override
    public Object send(Request request) {
        return plain(sendAllOn(request.blockMs > 0, List.of(request)).get(0));
    }

    @Override
    public List<Object> sendAll(List<Request> requests) {
        List<Object> replies = new ArrayList<>();
        sendAllOn(false, requests).forEach(reply -> replies.add(plain(reply)));
        return replies;
    }

    private List<Object> sendAllOn(boolean waits, List<Request> requests) {
        JedisConnections.Loan loan = connections.take(waits);
        boolean usable = false;
        try {
            Connection connection = loan.connection();
            requests.forEach(request -> connection.sendCommand(arguments(request)));
            List<Object> replies = new ArrayList<>();
            JedisDataException refused = null;
            for (Request request : requests) {
                int mostMs = (int) Math.min(Integer.MAX_VALUE, request.blockMs + answerMs);
                connection.setSoTimeout(AnswerTime.leftMs(mostMs));
                try {
                    replies.add(connection.getOne());
                } catch (JedisDataException refusal) {
                    refused = refused == null ? refusal : refused;
                }
            }
            usable = true;
            if (refused != null) {
                throw refused;
            }
            return replies;
        } finally {
            loan.end(!usable);
        }
    }

    @Override
    public boolean failsOver() {
        return failsOver;
    }

    @Override
    public void close() {
        connections.close();
    }
}
