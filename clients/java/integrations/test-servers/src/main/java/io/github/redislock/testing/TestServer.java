package io.github.redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
public final class TestServer implements AutoCloseable {
    /** Of all servers that are not said to be of another one. */
    private static final String VERSION =
            System.getenv().getOrDefault("CLIENT_SERVER", "redis-7.0.15");

    private final Process launcher;
    private final int port;
    private final int pid;

    /** By its port and its process. */
    private TestServer(Process launcher, String port, String pid) {
        this.launcher = launcher;
        this.port = Integer.parseInt(port);
        this.pid = Integer.parseInt(pid);
    }

    /** All that one call of clients/testing/servers.py starts. Closing any of them closes all. */
    static List<TestServer> group(String kind, String... words) {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("clients/testing/servers.py"))) {
            folder = folder.getParent();
        }
        List<String> command = new ArrayList<>(List.of(
                "python3", folder + "/clients/testing/servers.py", kind, "--version", VERSION));
        command.addAll(List.of(words));
        try {
            Process launcher = new ProcessBuilder(command)
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            String line = launcher.inputReader().readLine();
            if (line == null) {
                throw new IllegalStateException("no server started: " + command);
            }
            return Stream.of(line.split(" "))
                    .map(one -> one.split("/"))
                    .map(parts -> new TestServer(launcher, parts[0], parts[1]))
                    .toList();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** One with the module, with more words of it, and settings of the server behind them. */
    public static TestServer start(String... words) {
        return group("server", words).get(0);
    }

    /** One without the module. */
    public static TestServer withoutModule() {
        return start("--without-module");
    }

    public int port() {
        return port;
    }

    public String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** The reply to a command: strings, numbers, null, or lists of them. */
    public Object ask(Object... words) {
        try {
            return Resp.ask(port, words);
        } catch (IOException failed) {
            throw new UncheckedIOException(Arrays.toString(words), failed);
        }
    }

    /** A section of what the server tells of itself. */
    public String info(String section) {
        return ask("INFO", section).toString();
    }

    /** Waits until it is a primary, which it was not. */
    public void awaitPromotion() {
        Eventually.isTrue("it took over", () -> info("replication").contains("role:master"));
    }

    /** How often clients have called a command, of which the name is given in lower case. */
    public long calls(String command) {
        String pattern = "cmdstat_" + command + ":calls=(\\d+)";
        return found(pattern, info("commandstats").toLowerCase(Locale.ROOT)).stream()
                .mapToLong(Long::parseLong)
                .sum();
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
        return found("token, ([^,\\]]+)", parties(key, "holders"));
    }

    private static List<String> found(String pattern, Object text) {
        return Pattern.compile(pattern)
                .matcher(text.toString())
                .results()
                .map(found -> found.group(1))
                .sorted()
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
        return found("(?m)^id=(\\d+)", ask("CLIENT", "LIST", "TYPE", "pubsub"));
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

    /** The launcher ends them with its standard input. */
    @Override
    public void close() {
        try {
            launcher.getOutputStream().close();
            launcher.waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }
}
