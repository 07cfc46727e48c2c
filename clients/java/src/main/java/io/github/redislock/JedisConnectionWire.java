package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Commands over connections of Jedis, each with the time-out that it needs. */
final class JedisConnectionWire extends JedisWire {
    private final JedisConnections connections;
    private final int answerMs;
    private final boolean failsOver;
    private final long paceMs;
    private Link link;

    /** With the pool of an application it {@code failsOver}, as that may have a Sentinel. */
    JedisConnectionWire(JedisConnections connections, LockOptions options, boolean failsOver) {
        this.connections = connections;
        this.answerMs = options.answerMs();
        // A lost connection has to be seen while there is linger left.
        long lingerMs = options.linger().map(Duration::toMillis).orElse(0L);
        this.paceMs = Math.max(20, Math.min(1_000, lingerMs / 4));
        this.failsOver = failsOver;
    }

    @Override
    public Object send(Request request) {
        if (link == null || !request.lingers()) {
            return plain(sendOnAny(request.blockMs > 0, List.of(request)).get(0));
        }
        if (request.blockMs == 0) {
            return plain(link.send(request));
        }
        JedisConnections.Loan loan = connections.take(true);
        boolean[] broken = {true};
        try {
            Object reply = sendBy(loan, List.of(request), is -> broken[0] = is).get(0);
            // Its end is to be bound to the connection that stays, before this one may be closed.
            return plain(reply instanceof Long ? link.send(request.atOnce(false)) : reply);
        } finally {
            loan.end(broken[0]);
        }
    }

    @Override
    public void onReconnect(Runnable news) {
        link = new Link(news);
    }

    /** The one connection that holds are bound to. It is looked after, as it has to stay. */
    private final class Link {
        private final ScheduledExecutorService keeper = Holds.thread("redis-lock-link");
        private final Runnable news;
        private JedisConnections.Loan loan;
        private boolean before;

        Link(Runnable news) {
            this.news = news;
            keeper.scheduleWithFixedDelay(this::keep, paceMs, paceMs, TimeUnit.MILLISECONDS);
        }

        synchronized Object send(Request request) {
            if (loan == null) {
                loan = connections.take(true);
                if (before) {
                    news.run();
                }
                before = true;
            }
            return sendBy(loan, List.of(request), this::end).get(0);
        }

        private synchronized void keep() {
            boolean alive = !before;
            for (int tries = 0; !alive && tries < 2; tries++) {
                try {
                    send(new Request("PING"));
                    alive = true;
                } catch (JedisException outOfReach) {
                    // With a new connection then, or the next time.
                }
            }
        }

        private synchronized void end(boolean broken) {
            if (broken && loan != null) {
                loan.end(true);
                loan = null;
            }
        }

        void close() {
            keeper.shutdownNow();
            end(true);
        }
    }

    @Override
    public List<Object> sendAll(List<Request> requests) {
        List<Object> replies = new ArrayList<>();
        sendOnAny(false, requests).forEach(reply -> replies.add(plain(reply)));
        return replies;
    }

    private List<Object> sendOnAny(boolean waits, List<Request> requests) {
        JedisConnections.Loan loan = connections.take(waits);
        return sendBy(loan, requests, loan::end);
    }

    /** Says in the end whether the connection is broken. */
    private List<Object> sendBy(
            JedisConnections.Loan loan, List<Request> requests, Consumer<Boolean> end) {
        boolean usable = false;
        try {
            List<Object> replies = sendAll(loan.connection(), requests);
            usable = true;
            return replies;
        } catch (JedisDataException refusal) {
            usable = !Commands.isDemoted(refusal.getMessage());
            throw refusal;
        } finally {
            end.accept(!usable);
        }
    }

    private List<Object> sendAll(Connection connection, List<Request> requests) {
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
        if (refused != null) {
            throw refused;
        }
        return replies;
    }

    @Override
    public boolean failsOver() {
        return failsOver;
    }

    @Override
    public void close() {
        if (link != null) {
            link.close();
        }
        connections.close();
    }
}
