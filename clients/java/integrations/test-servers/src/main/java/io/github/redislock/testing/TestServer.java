package io.github.redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
public final class TestServer implements AutoCloseable {
    private static final String VERSION =
            System.getenv().getOrDefault("CLIENT_SERVER", "redis-7.0.15");

    private final Launched launched;
    private final int port;
    private final int pid;

    private TestServer(Launched launched, int number) {
        this.launched = launched;
        this.port = launched.servers.get(number)[0];
        this.pid = launched.servers.get(number)[1];
    }

    /** All that one call of the launcher starts. Closing any of them closes all. */
    static List<TestServer> group(String... words) {
        List<String> all = new ArrayList<>(List.of(words));
        all.addAll(List.of("--version", VERSION));
        Launched launched = new Launched(all);
        return IntStream.range(0, launched.servers.size())
                .mapToObj(number -> new TestServer(launched, number))
                .toList();
    }

    /**
     * Starts one with the module, of the version in {@code CLIENT_SERVER}.
     *
     * @return the server, which answers
     */
    public static TestServer start() {
        return group("server").get(0);
    }

    /**
     * Starts one without the module.
     *
     * @return the server, which answers
     */
    public static TestServer withoutModule() {
        return group("server", "--without-module").get(0);
    }

    /**
     * The port.
     *
     * @return on 127.0.0.1
     */
    public int port() {
        return port;
    }

    /**
     * The address.
     *
     * @return for a client
     */
    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    /**
     * Asks the server.
     *
     * @param words of a command
     * @return strings, numbers, null, or lists of them
     */
    public Object ask(String... words) {
        try {
            return Resp.ask(port, words);
        } catch (IOException failed) {
            throw new UncheckedIOException(String.join(" ", words), failed);
        }
    }

    /**
     * Whether somebody holds a lock.
     *
     * @param key of the lock
     * @return as the server sees it
     */
    public boolean isLocked(String key) {
        return Long.valueOf(1).equals(ask("EXISTS", key));
    }

    /**
     * How long a lock is held still, if nobody renews it.
     *
     * @param key of the lock
     * @return milliseconds, or -2 when it is free
     */
    public long leftMs(String key) {
        return (Long) ask("PTTL", key);
    }

    /**
     * How many wait for a lock.
     *
     * @param key of the lock
     * @return places in its queue
     */
    public int waiting(String key) {
        List<?> info = (List<?>) ask("LOCK.INFO", key);
        return info == null ? 0 : ((List<?>) info.get(info.indexOf("waiters") + 1)).size();
    }

    /**
     * How many connections there are.
     *
     * @return with the one that asks
     */
    public int connections() {
        return ask("CLIENT", "LIST").toString().split("\n").length;
    }

    /** Kills it, as a crash would. */
    public void kill() {
        ProcessHandle.of(pid).ifPresent(ProcessHandle::destroyForcibly);
    }

    @Override
    public void close() {
        launched.close();
    }
}
