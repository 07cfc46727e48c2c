package io.github.redislock;

import static redis.clients.jedis.BuilderFactory.AGGRESSIVE_ENCODED_OBJECT;
import static redis.clients.jedis.BuilderFactory.ENCODED_OBJECT_MAP;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.redislock.testing.Launched;

import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/** A real server with the module, on a free port of this machine, in a folder of its own. */
final class TestServer implements AutoCloseable {
    static final String VERSION = System.getenv().getOrDefault("CLIENT_SERVER", "redis-7.0.15");

    private final Launched launched;
    private final int port;
    private final int pid;
    final UnifiedJedis redis;

    private TestServer(Launched launched, int number) {
        this.launched = launched;
        this.port = launched.servers.get(number)[0];
        this.pid = launched.servers.get(number)[1];
        this.redis = client(URI.create(url()), 2, 5);
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

    static TestServer start() {
        return start(VERSION);
    }

    /** With more words of the module, and settings of the server behind them. */
    static TestServer start(String version, String... words) {
        List<String> all = new ArrayList<>(List.of("server", "--version", version));
        all.addAll(List.of(words));
        return new TestServer(new Launched(all), 0);
    }

    /** The default version with the module, which grants no longer lease. */
    static TestServer startBounded(long maxTtlMs) {
        return start(VERSION, "max-ttl", Long.toString(maxTtlMs));
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
        signal("KILL");
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
        redis.executeCommand(command("CLIENT")
                .add("KILL")
                .add("TYPE")
                .add("normal")
                .add("SKIPME")
                .add("yes"));
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
        return info == null
                ? List.of()
                : (List<?>) ENCODED_OBJECT_MAP.build(info).get("waiters");
    }

    static CommandArguments command(String name) {
        return new CommandArguments(() -> name.getBytes(UTF_8));
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
        redis.close();
        launched.close();
    }
}
