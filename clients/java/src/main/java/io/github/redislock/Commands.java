package io.github.redislock;

import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisClusterOperationException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/**
 * The module's commands, one try each.
 *
 * @param placeless whether the server's module is one of 0.1, which keeps no places
 * @param atLeast whether the server is known to have {@code RELEASE ... ATLEAST}
 */
record Commands(UnifiedJedis jedis, AtomicBoolean placeless, AtomicBoolean atLeast) {
    static final String EXEC_NEEDS = "LOCK.EXEC (for Redis 7.0 and later, and Valkey)";

    private static final System.Logger LOG = System.getLogger("io.github.redislock");

    Commands(UnifiedJedis jedis) {
        this(jedis, new AtomicBoolean(), new AtomicBoolean());
    }

    private enum Command implements ProtocolCommand {
        ACQUIRE("LOCK.ACQUIRE"),
        MACQUIRE("LOCK.MACQUIRE"),
        RLOCK("RWLOCK.RLOCK"),
        RENEW("LOCK.RENEW"),
        RELEASE("LOCK.RELEASE"),
        CHECK("LOCK.CHECK"),
        EXEC("LOCK.EXEC"),
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
    Long tryAcquire(Claim claim, String token, long ttlMs) {
        return acquire(claim, token, ttlMs, 0, 0);
    }

    /**
     * The fence, or null when the lock was not granted within {@code blockMs}. The server keeps the
     * place in the queue for {@code keepMs} more, if it can.
     */
    Long await(Claim claim, String token, long ttlMs, long blockMs, long keepMs) {
        if (keepMs == 0 || placeless.get()) {
            return acquire(claim, token, ttlMs, blockMs, 0);
        }
        try {
            return acquire(claim, token, ttlMs, blockMs, keepMs);
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
        return acquire(claim, token, ttlMs, blockMs, 0);
    }

    private Long acquire(Claim claim, String token, long ttlMs, long blockMs, long keepMs) {
        CommandArguments arguments = claim.several() ? several(claim) : one(claim);
        arguments.add(token).add(ttlMs);
        if (claim.several()) {
            arguments.add("MODES").addObjects(claim.modes().toArray());
        }
        if (claim.limit() > 0) {
            arguments.add("LIMIT").add(claim.limit());
        }
        if (blockMs > 0) {
            arguments.add("BLOCK").add(blockMs).blocking();
        }
        if (keepMs > 0) {
            arguments.add("KEEP").add(keepMs);
        }
        try {
            return (Long) jedis.executeCommand(arguments);
        } catch (JedisDataException failed) {
            if (claim.needs() != null && isMissing(failed.getMessage())) {
                throw missing(claim.needs(), failed);
            }
            throw failed;
        }
    }

    private static CommandArguments one(Claim claim) {
        boolean reads = claim.modes().get(0) == Mode.SHARED;
        return new CommandArguments(reads ? Command.RLOCK : Command.ACQUIRE).key(claim.name());
    }

    private static CommandArguments several(Claim claim) {
        CommandArguments arguments = new CommandArguments(Command.MACQUIRE);
        return arguments.add(claim.names().size()).keys(claim.names());
    }

    /** Whether all of it was held. */
    boolean renew(Claim claim, String token, long ttlMs) {
        return ofAll(
                claim,
                name -> new CommandArguments(Command.RENEW).key(name).add(token).add(ttlMs));
    }

    /** Whether all of it was held. */
    boolean release(Claim claim, String token) {
        return ofAll(claim, name -> new CommandArguments(Command.RELEASE).key(name).add(token));
    }

    /** Whether it was held. It ends {@code atLeastMs} after its grant, or now if that is past. */
    boolean release(String name, String token, long atLeastMs) {
        CommandArguments arguments = new CommandArguments(Command.RELEASE).key(name).add(token);
        try {
            return isOne(jedis.executeCommand(arguments.add("ATLEAST").add(atLeastMs)));
        } catch (JedisDataException failed) {
            if (isMissing(failed.getMessage())) {
                throw missing("LOCK.RELEASE ... ATLEAST", failed);
            }
            throw failed;
        }
    }

    /** Fails, once per client, if the server does not know a release that waits for a time. */
    void needAtLeast(String name, String token) {
        if (!atLeast.get()) {
            release(name, token, 0); // A token that holds nothing.
            atLeast.set(true);
        }
    }

    /** Whether all of it is held, as the server says. */
    boolean check(Claim claim, String token) {
        return replies(claim, name -> new CommandArguments(Command.CHECK).key(name).add(token))
                .stream()
                .allMatch(Long.class::isInstance);
    }

    /** Runs a command while the lock is held; not to be sent twice. */
    Object exec(String name, String token, String command, Object... words) {
        CommandArguments arguments = new CommandArguments(Command.EXEC).key(name).add(token);
        arguments.add(command).addObjects(words);
        try {
            return jedis.executeCommand(
                    new CommandObject<>(arguments, BuilderFactory.AGGRESSIVE_ENCODED_OBJECT));
        } catch (JedisDataException failed) {
            if (failed.getMessage().matches("(?i)ERR unknown command '?`?LOCK\\.EXEC.*")) {
                throw missing(EXEC_NEEDS, failed);
            }
            throw failed;
        }
    }

    private boolean ofAll(Claim claim, Function<String, CommandArguments> command) {
        return replies(claim, command).stream().allMatch(Commands::isOne);
    }

    private static boolean isOne(Object reply) {
        return reply instanceof Long number && number == 1;
    }

    /** One command per key, sent together. */
    private List<Object> replies(Claim claim, Function<String, CommandArguments> command) {
        List<Object> replies = new ArrayList<>();
        try {
            if (claim.names().size() == 1) {
                replies.add(jedis.executeCommand(command.apply(claim.name())));
                return replies;
            }
            List<Response<Object>> sent = new ArrayList<>();
            try (AbstractPipeline pipeline = jedis.pipelined()) {
                for (String name : claim.names()) {
                    sent.add(pipeline.sendCommand(command.apply(name)));
                }
                pipeline.sync();
            }
            sent.forEach(reply -> replies.add(reply.get()));
            return replies;
        } catch (JedisDataException failed) {
            if (failed.getMessage().matches("(?i)ERR unknown command '?`?LOCK\\.CHECK.*")) {
                throw missing("LOCK.CHECK", failed);
            }
            throw failed;
        }
    }

    /** How the lock is held: {@code exclusive}, {@code shared} or {@code free}. */
    String mode(String name) {
        return info(name).getOrDefault("mode", "free").toString();
    }

    int holders(String name) {
        return info(name).get("holders") instanceof List<?> holders ? holders.size() : 0;
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
        return isError(failure, "WRONGTYPE");
    }

    static boolean isDeadlock(JedisException failure) {
        return isError(failure, "DEADLOCK");
    }

    static boolean isError(JedisException failure, String code) {
        return failure instanceof JedisDataException && failure.getMessage().startsWith(code);
    }

    /** Whether an error says that the server's module is too old for an option or a command. */
    static boolean isMissing(String error) {
        return error.startsWith("ERR unknown option")
                || error.startsWith("ERR unknown command")
                || error.startsWith("ERR wrong number of arguments");
    }

    static UnsupportedOperationException missing(String feature, Throwable failed) {
        return new UnsupportedOperationException(
                "the server does not know " + feature + ", which is in module 0.2", failed);
    }
}
