package io.github.redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
public final class TestServer implements AutoCloseable {
    private static final String VERSION =
            System.getenv().getOrDefault("CLIENT_SERVER", "redis-7.0.15");

    private final Process process;
    private final Path folder;
    private final int port;

    private TestServer(Process process, Path folder, int port) {
        this.process = process;
        this.folder = folder;
        this.port = port;
    }

    /**
     * Starts one with the module, of the version in {@code CLIENT_SERVER}.
     *
     * @param words more of the command line
     * @return the server, which answers
     */
    public static TestServer start(String... words) {
        List<String> all = new ArrayList<>(List.of("--save", ""));
        all.addAll(List.of("--loadmodule", setting("REDIS_LOCK_MODULE")));
        all.addAll(List.of(words));
        return launch(List.of(), all);
    }

    /**
     * Starts one without the module.
     *
     * @return the server, which answers
     */
    public static TestServer withoutModule() {
        return launch(List.of(), List.of("--save", ""));
    }

    /** A Sentinel, of which {@code configuration} is the file. */
    static TestServer sentinel(List<String> configuration) {
        return launch(configuration, List.of("--sentinel"));
    }

    private static TestServer launch(List<String> configuration, List<String> words) {
        try {
            Path folder = Files.createTempDirectory("redis-lock-integrations");
            int port = freePort();
            List<String> command = new ArrayList<>();
            command.add(Path.of(setting("REDIS_LOCK_SERVERS"), VERSION, "bin/server").toString());
            if (!configuration.isEmpty()) {
                command.add(Files.write(folder.resolve("conf"), configuration).toString());
            }
            command.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1"));
            command.addAll(List.of("--dir", folder.toString()));
            command.addAll(words);
            Process process =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(folder.resolve("log").toFile())
                            .start();
            // Also when the tests are ended by a signal.
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            TestServer server = new TestServer(process, folder, port);
            Eventually.isTrue("the server answers", server::answers);
            return server;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
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
        process.destroyForcibly();
        process.onExit().join();
    }

    private boolean answers() throws IOException {
        if (!process.isAlive()) {
            throw new IllegalStateException(
                    "the server ended: " + Files.readString(folder.resolve("log")));
        }
        try {
            return "PONG".equals(Resp.ask(port, "PING"));
        } catch (IOException notYet) {
            return false;
        }
    }

    private static int freePort() throws IOException {
        // Below 55535, because a cluster's bus is at the port plus 10000.
        while (true) {
            try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                if (socket.getLocalPort() < 55_535) {
                    return socket.getLocalPort();
                }
            }
        }
    }

    private static String setting(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " is not set: run the tests by make");
        }
        return value;
    }

    @Override
    public void close() {
        kill();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }
}
