package io.github.redislock;

import static redis.clients.jedis.BuilderFactory.AGGRESSIVE_ENCODED_OBJECT;
import static redis.clients.jedis.BuilderFactory.ENCODED_OBJECT_MAP;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
final class TestServer implements AutoCloseable {
    static final String VERSION = System.getenv().getOrDefault("CLIENT_SERVER", "redis-7.0.15");

    private final Process process;
    private final Path folder;
    private final int port;
    final UnifiedJedis redis;

    private TestServer(Process process, Path folder, int port) {
        this.process = process;
        this.folder = folder;
        this.port = port;
        this.redis = client(URI.create(url()), 2, 5);
    }

    static TestServer start() {
        return start(VERSION);
    }

    static TestServer start(String version) {
        return start(version, "--loadmodule", setting("REDIS_LOCK_MODULE"));
    }

    /** The default version with the module, and more settings. */
    static TestServer startWith(String... settings) {
        List<String> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of("--loadmodule", setting("REDIS_LOCK_MODULE")));
        return start(VERSION, all.toArray(new String[0]));
    }

    /** The default version with the module, which grants no longer lease. */
    static TestServer startBounded(long maxTtlMs) {
        String module = setting("REDIS_LOCK_MODULE");
        return start(VERSION, "--loadmodule", module, "max-ttl", Long.toString(maxTtlMs));
    }

    /** One that has no module, unless the settings name it. */
    static TestServer start(String version, String... settings) {
        try {
            int port = freePort();
            Path folder = Files.createTempDirectory("redis-lock-client");
            List<String> words = new ArrayList<>();
            words.add(binary(version));
            words.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1"));
            words.addAll(List.of("--save", "", "--dir", folder.toString()));
            words.addAll(List.of(settings));
            return start(words, folder, port);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** A Sentinel that watches a primary of the name {@code main}. */
    static TestServer startSentinel(int primaryPort) {
        try {
            int port = freePort();
            Path folder = Files.createTempDirectory("redis-lock-client");
            Path file = folder.resolve("sentinel.conf");
            Files.write(
                    file,
                    List.of(
                            "port " + port,
                            "bind 127.0.0.1",
                            "dir " + folder,
                            "sentinel monitor main 127.0.0.1 " + primaryPort + " 1",
                            "sentinel down-after-milliseconds main 2000",
                            "sentinel failover-timeout main 6000"));
            return start(List.of(binary(VERSION), file.toString(), "--sentinel"), folder, port);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private static String binary(String version) {
        return Path.of(setting("REDIS_LOCK_SERVERS"), version, "bin", "server").toString();
    }

    private static TestServer start(List<String> words, Path folder, int port)
            throws IOException {
        Process process =
                new ProcessBuilder(words)
                        .redirectErrorStream(true)
                        .redirectOutput(folder.resolve("log").toFile())
                        .start();
        // Also when the tests are ended by a signal.
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        TestServer server = new TestServer(process, folder, port);
        server.awaitReady();
        return server;
    }

    /** A command with its words, and its reply with strings for bytes. */
    Object ask(String command, Object... words) {
        CommandArguments arguments = command(command);
        for (Object word : words) {
            arguments.add(word.toString());
        }
        return AGGRESSIVE_ENCODED_OBJECT.build(redis.executeCommand(arguments));
    }

    /** Ends at once, as by a loss of power. */
    void kill() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException cut) {
            throw new IllegalStateException(cut);
        }
    }

    /** A client of Jedis that all of its versions can make. */
    static UnifiedJedis client(int port) {
        return client(port, 8);
    }

    static UnifiedJedis client(int port, int connections) {
        return client(URI.create("redis://127.0.0.1:" + port), connections, 1);
    }

    /** The same, for the user of the address. */
    static UnifiedJedis client(URI address, int connections, int tries) {
        GenericObjectPoolConfig<Connection> pool = new GenericObjectPoolConfig<>();
        pool.setMaxTotal(connections);
        return new UnifiedJedis(
                new PooledConnectionProvider(
                        JedisURIHelper.getHostAndPort(address),
                        DefaultJedisClientConfig.builder()
                                .user(JedisURIHelper.getUser(address))
                                .password(JedisURIHelper.getPassword(address))
                                .build(),
                        pool),
                tries,
                Duration.ofSeconds(2));
    }

    /** A section of what the server tells of itself. */
    String info(String section) {
        return new String((byte[]) redis.executeCommand(command("INFO").add(section)), UTF_8);
    }

    int port() {
        return port;
    }

    String url() {
        return "redis://127.0.0.1:" + port;
    }

    /** Closes every connection but the one that says so, as a lost network would. */
    void cutConnections() {
        redis.executeCommand(
                command("CLIENT").add("KILL").add("TYPE").add("normal").add("SKIPME").add("yes"));
    }

    /** Closes the connection of the first waiter for a lock. */
    void cutFirstWaiter(String name) {
        Matcher client =
                Pattern.compile("client(?:=|, )(\\d+)").matcher(waiters(name).get(0).toString());
        if (!client.find()) {
            throw new IllegalStateException("nobody listens there");
        }
        redis.executeCommand(command("CLIENT").add("KILL").add("ID").add(client.group(1)));
    }

    /** Has the server answer nothing until {@link #resume()}. */
    void pause() {
        signal("STOP");
    }

    void resume() {
        signal("CONT");
    }

    /** The tokens of those who hold a lock. */
    List<String> holders(String name) {
        return ofHolders(name, "token");
    }

    /** The fences of those who hold a lock. */
    List<Long> fences(String name) {
        return ofHolders(name, "fence").stream().map(Long::valueOf).toList();
    }

    private List<String> ofHolders(String name, String field) {
        Object info = redis.executeCommand(command("LOCK.INFO").key(name));
        String holders = ENCODED_OBJECT_MAP.build(info).get("holders").toString();
        // Flat lists or maps, by the protocol.
        return Pattern.compile(field + "(?:=|, )([^,}\\]]+)")
                .matcher(holders)
                .results()
                .map(found -> found.group(1))
                .toList();
    }

    /** Whether somebody waits for a lock by a message. */
    boolean tells(String name) {
        return waiters(name).toString().contains("channel");
    }

    /** How many stand in line for a lock. */
    long waiting(String name) {
        return waiters(name).size();
    }

    /** How many places in the queue for a lock nobody listens for. */
    long absent(String name) {
        return waiters(name).stream()
                .filter(waiter -> !waiter.toString().matches(".*(client|channel)[,=].*"))
                .count();
    }

    private List<?> waiters(String name) {
        Object info = redis.executeCommand(command("LOCK.INFO").key(name));
        return info == null ? List.of() : (List<?>) ENCODED_OBJECT_MAP.build(info).get("waiters");
    }

    static CommandArguments command(String name) {
        return new CommandArguments(() -> name.getBytes(UTF_8));
    }

    private void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private void awaitReady() {
        Eventually.isTrue(
                "the server answers",
                () -> {
                    if (!process.isAlive()) {
                        throw new IllegalStateException("the server ended: " + log());
                    }
                    try {
                        return redis.ping().equals("PONG");
                    } catch (JedisException notYet) {
                        return false;
                    }
                });
    }

    private String log() {
        try {
            return Files.readString(folder.resolve("log"));
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
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
        redis.close();
        process.destroyForcibly();
        try (Stream<Path> files = Files.walk(folder)) {
            process.waitFor();
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }
}
