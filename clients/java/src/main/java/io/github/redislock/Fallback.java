package io.github.redislock;

import java.util.Arrays;
import java.util.List;

/**
 * What a client does at a server without the module: {@code SET NX PX} and scripts, if it may. The
 * choice is made at the first use of the client, and stays.
 */
final class Fallback {
    static final String LOST =
            "no fair queue, no fence, no readers-writers, no counted or several locks, no guarded"
                    + " commands, and a clock that an eviction or a failover can cut short";

    static final String LEAST_TIME = "a least time";
    static final String SEMAPHORE = "a semaphore";

    private static final String LOAD =
            "load it by `loadmodule /path/libredis_lock.so` in the server's configuration, and"
                    + " restart the server";

    /** The same token has its lock again, so that a request may be sent twice. */
    private static final String ACQUIRE =
            "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end"
                    + " if redis.pcall('GET', KEYS[1]) == ARGV[1] then"
                    + " redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 0 end"
                    + " return false";

    private static final String IF_MINE =
            "if redis.pcall('GET', KEYS[1]) == ARGV[1] then return ";

    private static final String RELEASE = IF_MINE + "redis.call('DEL', KEYS[1]) end return 0";

    private static final String RENEW =
            IF_MINE + "redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

    private static final String CHECK = IF_MINE + "1 end return false";

    private static final String INFO = "local free = redis.call('PTTL', KEYS[1]) == -2"
            + " return {'mode', free and 'free' or 'exclusive'}";

    private final boolean allowed;

    /** Null until the server was asked for the module. */
    private volatile Boolean used;

    Fallback(boolean allowed) {
        this.allowed = allowed;
    }

    /** Whether the server was asked for the module. */
    boolean isChosen() {
        return used != null;
    }

    boolean isUsed() {
        return Boolean.TRUE.equals(used);
    }

    /** The server knows a command of the module, as this is its answer. */
    synchronized Object sawModule(Object reply) {
        used = isUsed();
        return reply;
    }

    /** The server has no module: whether the client goes on without it. */
    synchronized boolean begin() {
        if (!isChosen() && allowed) {
            used = true;
            Engine.LOG.log(
                    System.Logger.Level.WARNING,
                    "The server has no redis-lock module, so this client locks by SET NX PX and"
                            + " scripts. Lost by that: {0}.",
                    LOST);
        }
        return isUsed();
    }

    static boolean isOurs(Request request) {
        return request.command.startsWith("LOCK.") || request.command.startsWith("RWLOCK.");
    }

    static ModuleMissingException missing(Request request, Throwable cause) {
        String text = "the server does not know " + request.command + ": it has no redis-lock module,"
                + " or an older one: " + LOAD + ". Where modules cannot be loaded,"
                + " LockOptions.withFallback(true) locks by SET NX PX and scripts. Lost by that: "
                + LOST;
        return new ModuleMissingException(text, cause);
    }

    private static Request refused(String feature) {
        throw lacks(feature);
    }

    static ModuleMissingException lacks(String feature) {
        String text = feature + " is not available in the fallback, as the server has no redis-lock"
                + " module: " + LOAD;
        return new ModuleMissingException(text, null);
    }

    /** What is sent in the place of a command of the module. */
    static Request instead(Request request) {
        List<byte[]> words = request.words();
        return switch (request.command) {
            case "LOCK.ACQUIRE" ->
                has(words, 3, "LIMIT") ? refused(SEMAPHORE) : script(ACQUIRE, request, 3);
            case "LOCK.RELEASE" ->
                has(words, 2, "ATLEAST") ? refused(LEAST_TIME) : script(RELEASE, request, 2);
            case "LOCK.RENEW" -> script(RENEW, request, 3);
            case "LOCK.CHECK" -> script(CHECK, request, 2);
            case "LOCK.INFO" -> script(INFO, request, 1);
            case "LOCK.ONCE" -> refused("a value that one makes for all");
            case "RWLOCK.RLOCK" -> refused("a read lock");
            case "LOCK.MACQUIRE" -> refused("a multi-lock");
            default -> refused("a guarded command");
        };
    }

    private static boolean has(List<byte[]> words, int at, String option) {
        return words.size() > at && Arrays.equals(words.get(at), Request.bytes(option));
    }

    private static Request script(String script, Request request, int count) {
        Request instead = new Request("EVAL").add(script).add(1).key(request.key);
        request.words().subList(1, count).forEach(instead::add);
        instead.whenResent = request.whenResent;
        return instead;
    }
}
