package io.github.redislock;

import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisClusterOperationException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The module's commands, one try each.
 *
 * @param placeless whether the server's module is one of 0.1, which keeps no places
 */
record Commands(UnifiedJedis jedis, AtomicBoolean placeless) {
    private static final System.Logger LOG = System.getLogger("io.github.redislock");

    Commands(UnifiedJedis jedis) {
        this(jedis, new AtomicBoolean());
    }

    private enum Command implements ProtocolCommand {
        ACQUIRE("LOCK.ACQUIRE"),
        RLOCK("RWLOCK.RLOCK"),
        RENEW("LOCK.RENEW"),
        RELEASE("LOCK.RELEASE"),
        INFO("LOCK.INFO");

        private final byte[] raw;

        Command(String name) {
            raw = SafeEncoder.encode(name);
        }

        @Override
        public byte[] getRaw() {
            return raw;
        }
    }

    /** The fence, or null when the lock cannot be had at once. */
    Long tryAcquire(Mode mode, String name, String token, long ttlMs) {
        return acquire(mode, name, token, ttlMs, 0, 0);
    }

    /**
     * The fence, or null when the lock was not granted within {@code blockMs}. The server keeps the
     * place in the queue for {@code keepMs} more, if it can.
     */
    Long await(Mode mode, String name, String token, long ttlMs, long blockMs, long keepMs) {
        if (keepMs == 0 || placeless.get()) {
            return acquire(mode, name, token, ttlMs, blockMs, 0);
        }
        try {
            return acquire(mode, name, token, ttlMs, blockMs, keepMs);
        } catch (JedisDataException failed) {
            if (!failed.getMessage().startsWith("ERR unknown option")) {
                throw failed;
            }
        }
        if (placeless.compareAndSet(false, true)) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "The server's module does not know KEEP (it is of 0.1), so a waiter loses its"
                            + " place in the queue at the end of each slice and with its"
                            + " connection.");
        }
        return acquire(mode, name, token, ttlMs, blockMs, 0);
    }

    private Long acquire(
            Mode mode, String name, String token, long ttlMs, long blockMs, long keepMs) {
        Command command = mode == Mode.SHARED ? Command.RLOCK : Command.ACQUIRE;
        CommandArguments arguments = new CommandArguments(command).key(name).add(token).add(ttlMs);
        if (blockMs > 0) {
            arguments.add("BLOCK").add(blockMs).blocking();
        }
        if (keepMs > 0) {
            arguments.add("KEEP").add(keepMs);
        }
        return (Long) jedis.executeCommand(arguments);
    }

    boolean renew(String name, String token, long ttlMs) {
        return (Long)
                        jedis.executeCommand(
                                new CommandArguments(Command.RENEW).key(name).add(token).add(ttlMs))
                == 1;
    }

    boolean release(String name, String token) {
        return (Long)
                        jedis.executeCommand(
                                new CommandArguments(Command.RELEASE).key(name).add(token))
                == 1;
    }

    /** How the lock is held: {@code exclusive}, {@code shared} or {@code free}. */
    String mode(String name) {
        return info(name).getOrDefault("mode", "free").toString();
    }

    boolean isWaiting(String name, String token) {
        return info(name).getOrDefault("waiters", List.of()) instanceof List<?> waiters
                // The replies of RESP2 are flat lists and those of RESP3 maps: the token is in
                // either.
                && waiters.stream().anyMatch(waiter -> waiter.toString().contains(token));
    }

    private Map<String, Object> info(String name) {
        CommandArguments arguments = new CommandArguments(Command.INFO).key(name);
        Map<String, Object> info =
                jedis.executeCommand(
                        new CommandObject<>(arguments, BuilderFactory.ENCODED_OBJECT_MAP));
        return info == null ? Map.of() : info;
    }

    long ttlMs(String name) {
        return jedis.pttl(name);
    }

    boolean delete(String name) {
        return jedis.del(name) == 1;
    }

    /**
     * Whether the server was out of reach, or is only just starting, moving a slot or changing its
     * role.
     */
    static boolean passes(JedisException failure) {
        return failure instanceof JedisConnectionException
                || failure instanceof JedisClusterOperationException
                || (failure instanceof JedisDataException
                        && failure.getMessage() != null
                        && passes(failure.getMessage()));
    }

    /** Whether an error says that the server, or another one, will do the same command later. */
    static boolean passes(String error) {
        String codes = "UNBLOCKED|TRYAGAIN|LOADING|MASTERDOWN|CLUSTERDOWN|READONLY";
        return error.matches("(?s)(" + codes + ")\\b.*");
    }

    /**
     * Whether somebody else's kind of lock is on the key: an old client's string, or the hash of
     * Redisson.
     */
    static boolean isForeign(JedisException failure) {
        return failure instanceof JedisDataException
                && failure.getMessage().startsWith("WRONGTYPE");
    }

    static boolean isDeadlock(JedisException failure) {
        return failure instanceof JedisDataException && failure.getMessage().startsWith("DEADLOCK");
    }
}
