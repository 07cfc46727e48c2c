package io.github.redislock;

import java.util.*;
import java.util.stream.Stream;

/**
 * What the server's replies mean. The table of error words is that of {@code
 * clients/vectors/errors.txt}, which all adapters have.
 */
final class Replies {
    /** What helps against an error: asking again, at this or at another server, or nothing. */
    enum Kind {
        TEMPORARY,
        ELSEWHERE,
        FINAL
    }

    static final Map<Kind, Set<String>> WORDS = Map.of(
            Kind.TEMPORARY,
            Set.of("LOADING", "BUSY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "OOM", "CLUSTERDOWN",
                    "UNBLOCKED"),
            Kind.ELSEWHERE,
            Set.of("MASTERDOWN", "READONLY", "MOVED", "ASK"),
            Kind.FINAL,
            Set.of("NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "CROSSSLOT", "ERR"));

    static final String TTL_TOO_LONG = "ERR ttl must not be above lock.max-ttl";

    static final String LEASE =
            "the lease (LockOptions.ttl where none is given, lockAtMostFor of a job)";

    /** How servers and proxies say that they have no such command, in lower case. */
    private static final List<String> UNKNOWN = List.of(
            "unknown command", "unknown redis", "unsupported", "not supported", "not available");

    private Replies() {}

    /** Words that are not in the table are final, too. */
    static Kind kind(String error) {
        return Stream.of(Kind.values())
                .filter(kind -> WORDS.get(kind).contains(word(error)))
                .findAny()
                .orElse(Kind.FINAL);
    }

    static String word(String error) {
        return error == null ? "" : error.split("[^A-Z]", 2)[0];
    }

    static boolean isError(String error, String start) {
        return error != null && error.startsWith(start);
    }

    /**
     * Whether the server is not the primary any more. It closes nothing then, so its connections
     * have to be left for those of another one.
     */
    static boolean isDemoted(String error) {
        return isError(error, "READONLY") || isError(error, "UNBLOCKED");
    }

    /** Whether an error says that this command is unknown, and not one that it guards. */
    static boolean isUnknown(Request request, String error) {
        boolean another = !word(error).equals("ERR")
                && WORDS.values().stream().anyMatch(words -> words.contains(word(error)));
        if (error == null || another) {
            return false;
        }
        String text = error.toLowerCase(Locale.ROOT);
        boolean namesOne = request.command.equals("LOCK.EXEC") || text.matches(".*['`].*");
        return UNKNOWN.stream().anyMatch(text::contains)
                && (text.contains(request.command.toLowerCase(Locale.ROOT)) || !namesOne);
    }

    static boolean isOne(Object reply) {
        return reply instanceof Long number && number > 0;
    }

    /** The server bounds its leases, and the least times. */
    static IllegalArgumentException tooLong(String time, Throwable failed) {
        return new IllegalArgumentException(time + " is too long: " + failed.getMessage(), failed);
    }

    static IllegalArgumentException crossSlot(Claim claim, Throwable failed) {
        String rule = claim.result() == null
                ? "the keys of a multi-lock must have one slot, as {orders}:1 and {orders}:2 have: "
                : "a value whose name has a } needs a hash tag, as {page}:7 has: ";
        return new IllegalArgumentException("in a cluster " + rule + claim.title(), failed);
    }

    static IllegalMonitorStateException notHeld(Claim claim) {
        String kind = claim.limit() > 0 ? "the permit of " : "the lock of ";
        return new IllegalMonitorStateException(
                kind + claim.title() + " is not held here, or was lost");
    }
}
