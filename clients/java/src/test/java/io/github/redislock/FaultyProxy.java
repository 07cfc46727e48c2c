package io.github.redislock;

import io.github.redislock.testing.Eventually;

import java.io.IOException;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/**
 * Stands before a server. It can cut the connections, serve new ones late or not at all, keep
 * replies to itself, and answer commands.
 */
final class FaultyProxy implements AutoCloseable {
    /** The only integer of the protocol that is as long. */
    private static final Pattern FENCE = Pattern.compile("(?m)^:\\d{16}");

    /** A connection, and what it has had. */
    private static final class Carried {
        final Socket client;
        final Socket server;
        volatile boolean subscribed;

        /** Whether its reply waits. */
        volatile boolean withheld;

        /** Whether it is open on the client's side only. */
        volatile boolean forgotten;

        Carried(Socket client, Socket server) {
            this.client = client;
            this.server = server;
        }
    }

    /** Whether replies go nowhere, on connections that stay open. */
    volatile boolean silent;

    /** Whether messages go nowhere, on a connection that stays open. */
    volatile boolean deaf;

    /** How late replies are. */
    volatile long replyDelayMs;

    /** How late new connections are served; below 0 not at all. */
    volatile long connectDelayMs;

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
    private volatile String answered = "";
    private volatile String answer;

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

    /** Closes those that have not subscribed. */
    void cutUnsubscribed() {
        cut(each -> !each.subscribed);
    }

    private void cut(Predicate<Carried> which) {
        open.stream().filter(which).forEach(each -> Other.quietly(() -> {
            each.client.close();
            each.server.close();
        }));
    }

    /** Those that have subscribed end for the server, and the client hears nothing of it. */
    void forgetSubscribed() {
        open.stream().filter(each -> each.subscribed).forEach(each -> {
            each.forgotten = true;
            Other.quietly(each.server::close);
        });
    }

    /** Closes all, as a lost network would. New ones are served late, or below 0 not at all. */
    void cut(long delayMs) {
        connectDelayMs = delayMs;
        cut(any -> true);
    }

    /** Says nothing more on the connection on which the first fence would have come. */
    void swallowFirstFence() {
        fencesToSwallow.set(1);
    }

    boolean hasSwallowed() {
        return fencesToSwallow.get() == 0;
    }

    /** Answers the next commands of a name, each of which comes alone. */
    void answer(String command, String answer, int count) {
        this.answer = answer;
        answered = "\r\n" + command + "\r\n";
        toAnswer.set(count);
    }

    /** Carries everything again. */
    void heal() {
        silent = false;
        replyDelayMs = 0;
        heldBack = null;
        withheld = null;
        toAnswer.set(0);
    }

    private void serve(Socket client) throws Exception {
        try (client) {
            if (connectDelayMs < 0) {
                return;
            }
            Thread.sleep(connectDelayMs);
            try (Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort)) {
                Carried carried = new Carried(client, server);
                open.add(carried);
                start(() -> carryReplies(carried));
                carryCommands(carried);
                Thread.sleep(10 * replyDelayMs); // What comes by another connection comes sooner.
            }
        }
    }

    private void carryCommands(Carried carried) throws IOException {
        byte[] bytes = new byte[16_384];
        for (int count; (count = carried.client.getInputStream().read(bytes)) > 0; ) {
            // A connection of Jedis has one command at a time, and writes it at once.
            String text = new String(bytes, 0, count, StandardCharsets.ISO_8859_1);
            if (carried.forgotten) {
                continue;
            }
            carried.subscribed |= text.contains("SUBSCRIBE");
            carried.withheld |= withheld != null && text.contains("\r\n" + withheld);
            if (text.contains(answered) && takes(toAnswer)) {
                carried.client.getOutputStream().write(answer.getBytes(StandardCharsets.US_ASCII));
                continue;
            }
            holdsBack |= isHeldBack(text);
            Eventually.isTrue("it goes on", () -> !isHeldBack(text));
            carried.server.getOutputStream().write(bytes, 0, count);
        }
    }

    private boolean isHeldBack(String text) {
        String command = heldBack;
        return command != null && text.contains("\r\n" + command);
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
                Eventually.isTrue("it goes on", () -> withheld == null || !carried.withheld);
                String text = new String(bytes, 0, count, StandardCharsets.ISO_8859_1);
                over |= FENCE.matcher(text).find() && takes(fencesToSwallow);
                if (!over && !silent && !(deaf && carried.subscribed)) {
                    carried.client.getOutputStream().write(bytes, 0, count);
                }
            }
        } finally {
            if (!carried.forgotten) {
                carried.client.close();
            }
        }
    }

    private static void start(Other.Action action) {
        Engine.daemons("proxy").newThread(() -> {
            try {
                action.run();
            } catch (Exception closed) {
                // That is its end.
            }
        }).start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut(-1);
    }
}
