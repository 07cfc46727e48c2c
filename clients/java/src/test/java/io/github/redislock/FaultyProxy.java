package io.github.redislock;

import io.github.redislock.testing.Eventually;

import java.io.IOException;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;

/**
 * Stands before a server. It can cut the connections, serve new ones late or not at all, keep
 * replies to itself, and answer commands.
 */
final class FaultyProxy implements AutoCloseable {
    /** The only integer of the protocol that is as long. */
    private static final Pattern FENCE = Pattern.compile("(?m)^:\\d{16}");

    /** A connection, and whether it had such a command, or is open on the client's side only. */
    private record Carried(
            Socket client,
            Socket server,
            AtomicBoolean subscribed,
            AtomicBoolean withheld,
            AtomicBoolean forgotten) {}

    /** Whether replies go nowhere, on connections that stay open. */
    volatile boolean silent;

    /** How many replies went nowhere. */
    final AtomicInteger lostReplies = new AtomicInteger();

    /** Whether messages go nowhere, on a connection that stays open. */
    volatile boolean deaf;

    /** How late replies are. */
    volatile long replyDelayMs;

    /** A command that waits on its way to the server, until this is null. */
    volatile String heldBack;

    /** Whether one was. */
    volatile boolean holdsBack;

    /** A command whose reply waits on its way to the client, until this is null. */
    volatile String withheld;

    /** How many commands are answered here still, and do not get to the server. */
    final AtomicInteger toAnswer = new AtomicInteger();

    /** Where new connections go. */
    volatile int serverPort;

    private final List<Carried> open = new CopyOnWriteArrayList<>();
    private final AtomicInteger fencesToSwallow = new AtomicInteger();
    private final ServerSocket listener;
    private volatile boolean swallowed;
    private volatile String answered = "";
    private volatile String answer;
    private volatile boolean shut;
    private volatile long delayMs;

    FaultyProxy(int serverPort) throws IOException {
        this.serverPort = serverPort;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(() -> {
            while (true) {
                Socket client = listener.accept();
                start(() -> serve(client));
            }
        });
    }

    String url() {
        return "redis://127.0.0.1:" + port();
    }

    int port() {
        return listener.getLocalPort();
    }

    /** Closes the connections, as a lost network would. */
    void cut() throws IOException {
        for (Carried each : open) {
            each.client.close();
            each.server.close();
        }
    }

    /** Closes those that have not subscribed. */
    void cutUnsubscribed() throws IOException {
        for (Carried each : open) {
            if (!each.subscribed.get()) {
                each.client.close();
                each.server.close();
            }
        }
    }

    /** Those that have subscribed end for the server, and the client hears nothing of it. */
    void forgetSubscribed() throws IOException {
        for (Carried each : open) {
            if (each.subscribed.get()) {
                each.forgotten.set(true);
                each.server.close();
            }
        }
    }

    /** The same; new ones are served late. */
    void cut(long delayMs) throws IOException {
        this.delayMs = delayMs;
        cut();
    }

    /** Closes the connections, and new ones at once. */
    void shut() throws IOException {
        shut = true;
        cut();
    }

    /** Serves new ones again. */
    void join() {
        shut = false;
    }

    /** Says nothing more on the connection on which the first fence would have come. */
    void swallowFirstFence() {
        fencesToSwallow.set(1);
    }

    boolean hasSwallowed() {
        return swallowed;
    }

    void answerRenewals(String answer, int count) {
        answer("LOCK.RENEW", answer, count);
    }

    /** Answers the next commands of a name, each of which comes alone. */
    void answer(String command, String answer, int count) {
        this.answer = answer;
        answered = "\r\n" + command + "\r\n";
        toAnswer.set(count);
    }

    /** Answers all commands whose names begin so. */
    void answerStarting(String name, String answer) {
        this.answer = answer;
        answered = "\r\n" + name;
        toAnswer.set(Integer.MAX_VALUE);
    }

    private void serve(Socket client) throws Exception {
        try (client) {
            if (shut) {
                return;
            }
            Thread.sleep(delayMs);
            try (Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort)) {
                Carried carried = new Carried(
                        client,
                        server,
                        new AtomicBoolean(),
                        new AtomicBoolean(),
                        new AtomicBoolean());
                open.add(carried);
                start(() -> carryReplies(carried));
                carryCommands(carried);
            }
        }
    }

    private void carryCommands(Carried carried) throws IOException {
        Socket client = carried.client;
        byte[] bytes = new byte[16_384];
        for (int count; (count = client.getInputStream().read(bytes)) > 0; ) {
            // A connection of Jedis has one command at a time, and writes it at once.
            String text = new String(bytes, 0, count, StandardCharsets.ISO_8859_1);
            if (carried.forgotten.get()) {
                continue;
            }
            carried.subscribed.compareAndSet(false, text.contains("SUBSCRIBE"));
            carried.withheld.compareAndSet(
                    false, withheld != null && text.contains("\r\n" + withheld));
            if (text.contains(answered) && takes(toAnswer)) {
                client.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
                continue;
            }
            holdsBack |= heldBack != null && text.contains("\r\n" + heldBack);
            Eventually.isTrue(
                    "it goes on", () -> heldBack == null || !text.contains("\r\n" + heldBack));
            carried.server.getOutputStream().write(bytes, 0, count);
        }
    }

    private static boolean takes(AtomicInteger left) {
        return left.getAndUpdate(count -> Math.max(0, count - 1)) > 0;
    }

    private void carryReplies(Carried carried) throws IOException, InterruptedException {
        byte[] bytes = new byte[16_384];
        boolean over = false;
        try {
            for (int count; (count = carried.server.getInputStream().read(bytes)) > 0; ) {
                Thread.sleep(replyDelayMs);
                Eventually.isTrue("it goes on", () -> withheld == null || !carried.withheld.get());
                String text = new String(bytes, 0, count, StandardCharsets.ISO_8859_1);
                if (FENCE.matcher(text).find() && takes(fencesToSwallow)) {
                    swallowed = true;
                    over = true;
                }
                if (!over && !silent && !(deaf && carried.subscribed.get())) {
                    carried.client.getOutputStream().write(bytes, 0, count);
                } else {
                    lostReplies.incrementAndGet();
                }
            }
        } finally {
            if (!carried.forgotten.get()) {
                carried.client.close();
            }
        }
    }

    private static void start(Other.Action action) {
        Thread thread = new Thread(() -> {
            try {
                action.run();
            } catch (Exception closed) {
                // That is its end.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }
}
