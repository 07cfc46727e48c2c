package io.github.redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.*;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
public final class TestServer implements AutoCloseable {
    /** Of all servers that are not said to be of another one. */
    public static final String VERSION =
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
    static List<TestServer> group(String kind, String version, String... words) {
        List<String> all = new ArrayList<>(List.of(kind, "--version", version));
        all.addAll(List.of(words));
        Launched launched = new Launched(all);
        return IntStream.range(0, launched.servers.size())
                .mapToObj(number -> new TestServer(launched, number))
                .toList();
    }

    /** One with the module, which answers. */
    public static TestServer start() {
        return start(VERSION);
    }

    /** With more words of the module, and settings of the server behind them. */
    public static TestServer start(String version, String... words) {
        return group("server", version, words).get(0);
    }

    /** One without the module. */
    public static TestServer withoutModule() {
        return start(VERSION, "--without-module");
    }

    public int port() {
        return port;
    }

    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** The reply to a command: strings, numbers, null, or lists of them. */
    public Object ask(Object... words) {
        String[] texts = Stream.of(words).map(Object::toString).toArray(String[]::new);
        try {
            return Resp.ask(port, texts);
        } catch (IOException failed) {
            throw new UncheckedIOException(String.join(" ", texts), failed);
        }
    }

    /** A section of what the server tells of itself. */
    public String info(String section) {
        return ask("INFO", section).toString();
    }

    /** How often clients have called a command, of which the name is given in lower case. */
    public long calls(String command) {
        Matcher calls = Pattern.compile("cmdstat_" + command + ":calls=(\\d+)")
                .matcher(info("commandstats").toLowerCase(Locale.ROOT));
        return calls.find() ? Long.parseLong(calls.group(1)) : 0;
    }

    /** Whether the key exists, which somebody holds then. */
    public boolean isLocked(String key) {
        return ask("EXISTS", key).equals(1L);
    }

    /** How long a lock is held still, if nobody renews it; -2 when it is free. */
    public long leftMs(String key) {
        return (Long) ask("PTTL", key);
    }

    /** The tokens of those who hold a lock. */
    public List<String> holders(String key) {
        return ofHolders(key, "token");
    }

    /** The fences of those who hold a lock. */
    public List<Long> fences(String key) {
        return ofHolders(key, "fence").stream().map(Long::valueOf).toList();
    }

    private List<String> ofHolders(String key, String field) {
        return Pattern.compile(field + ", ([^,\\]]+)")
                .matcher(parties(key, "holders").toString())
                .results()
                .map(found -> found.group(1))
                .toList();
    }

    /** How many places there are in the queue for a lock. */
    public int waiting(String key) {
        return parties(key, "waiters").size();
    }

    /** How many of them nobody listens for. */
    public long absent(String key) {
        return parties(key, "waiters").stream()
                .filter(waiter -> !waiter.toString().matches(".*(client|channel),.*"))
                .count();
    }

    /** Whether somebody waits for a lock by a message. */
    public boolean tells(String key) {
        return parties(key, "waiters").toString().contains("channel");
    }

    private List<?> parties(String key, String which) {
        List<?> info = (List<?>) ask("LOCK.INFO", key);
        return info == null ? List.of() : (List<?>) info.get(info.indexOf(which) + 1);
    }

    /** How many connections there are, with the one that asks. */
    public int connections() {
        return ask("CLIENT", "LIST").toString().split("\n").length;
    }

    /** The numbers of the connections that have subscribed. */
    public List<String> subscriptions() {
        return Pattern.compile("(?m)^id=(\\d+)")
                .matcher(ask("CLIENT", "LIST", "TYPE", "pubsub").toString())
                .results()
                .map(found -> found.group(1))
                .sorted()
                .toList();
    }

    /** Closes every connection, as a lost network would. */
    public void cutConnections() {
        ask("CLIENT", "KILL", "SKIPME", "yes");
    }

    /** Has the server answer nothing until {@link #resume()}. */
    public void pause() {
        signal("STOP");
    }

    /** Ends a pause. */
    public void resume() {
        signal("CONT");
    }

    /** Ends it at once, as by a loss of power. */
    public void kill() {
        signal("KILL");
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Integer.toString(pid))
                    .start()
                    .waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    @Override
    public void close() {
        launched.close();
    }
}
