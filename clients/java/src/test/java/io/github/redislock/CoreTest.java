package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;

/** The rules that need no server, by a clock that the test sets. */
class CoreTest {
    private static final long MS = 1_000_000;
    private long now = 5_000 * MS;

    @Test
    void theTableOfErrorsIsTheOneOfAllAdapters() throws Exception {
        Map<Replies.Kind, Set<String>> shared = Files.readAllLines(Path.of("../vectors/errors.txt"))
                .stream()
                .filter(line -> !line.startsWith("#") && !line.isBlank())
                .map(line -> line.trim().split("\\s+"))
                .collect(Collectors.groupingBy(
                        words -> Replies.Kind.valueOf(words[1].toUpperCase()),
                        Collectors.mapping(words -> words[0], Collectors.toSet())));
        assertEquals(shared, Replies.WORDS);
        assertEquals(Replies.Kind.TEMPORARY, Replies.kind("BUSY Redis is busy running a script."));
        assertEquals(Replies.Kind.FINAL, Replies.kind("NEWWORD of a newer server"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'a'",
                "ERR unknown command `LOCK.ACQUIRE`, with args beginning with: `a`, ",
                "ERR Command is not available: 'LOCK.ACQUIRE'. See the documentation",
                "unsupported command 'lock.acquire'",
                "ERR unsupported command 'LOCK.ACQUIRE'",
                "ERR The command LOCK.ACQUIRE is not supported",
            })
    void noSuchCommandIsKnownInEveryWording(String error) {
        assertTrue(Replies.isUnknown(new Request("LOCK.ACQUIRE"), error));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "NOPERM this user has no permissions to run the 'lock.acquire' command",
                "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER",
                "ERR wrong number of arguments for 'lock.acquire' command",
                "BUSY Redis is busy running a script, which is not supported here"
            })
    void otherErrorsAreNotTakenForIt(String error) {
        assertFalse(Replies.isUnknown(new Request("LOCK.ACQUIRE"), error));
    }

    @Test
    void aCommandThatIsGuardedMayBeTheUnknownOne() {
        Request guarded = Request.guarding("a", "token", "FOO");
        assertFalse(Replies.isUnknown(guarded, "ERR unknown command 'FOO'"));
        assertTrue(Replies.isUnknown(guarded, "ERR unknown command 'LOCK.EXEC'"));
    }

    private Lease lease(long ttlMs, long lingerMs) {
        Lease lease = new Lease(() -> now, lingerMs);
        lease.begin(now, now, ttlMs);
        return lease;
    }

    @Test
    void aTtlCountsFromTheSendingLessTheDrift() {
        Lease lease = lease(200_000, -1);
        Lease.Sent sent = lease.sends(100_000);
        assertEquals(98_998 * MS, lease.leftNanos(), "it is shorter, answer or not");
        assertTrue(lease.answered(sent));
        lease.answered(lease.sends(200_000));
        assertEquals(200_000, lease.leftMs());
    }

    @Test
    void aLeaseThatLingersIsOverSoLongAfterItsConnectionWasKnownToLive() {
        Lease lease = lease(20_000, 1_000);
        Lease.Pulse pulse = new Lease.Pulse(0, now);
        lease.bind(pulse);
        now += 600 * MS;
        pulse.livedAt(now);
        now += 900 * MS;
        assertTrue(lease.leftNanos() > 0, "it was seen to live 900 ms ago");
        Lease.Sent sent = lease.sends(20_000);
        now += 100 * MS;
        assertTrue(lease.leftNanos() <= 0, "and not since then");
        assertTrue(lease.ttlLeftNanos() > 0);
        assertFalse(lease.answered(sent), "a lease that is over stays so");
    }

    @Test
    void theNextConnectionCountsOnlyFromTheBindingOn() {
        Lease lease = lease(20_000, 1_000);
        lease.bind(new Lease.Pulse(0, now));
        Lease.Pulse next = new Lease.Pulse(1, now + 900 * MS);
        now += 900 * MS;
        next.livedAt(now);
        assertEquals(88 * MS, lease.leftNanos());
        lease.bind(next);
        assertEquals(988 * MS, lease.leftNanos());
    }

    @Test
    void aRenewalIsDueAtAThirdOfWhatIsLeft() {
        assertEquals(10_000 * MS, Keeper.renewalNanos(30_000 * MS, 60_000 * MS));
        assertEquals(4_000 * MS, Keeper.renewalNanos(30_000 * MS, 12_000 * MS));
        assertEquals(0, Keeper.renewalNanos(30_000 * MS, -5));
        assertEquals(200 * MS, Keeper.soonNanos(30_000));
        assertEquals(15 * MS, Keeper.soonNanos(300));
    }

    @Test
    void timesOutOfTheirRangeAreRefused() {
        LockOptions options = LockOptions.defaults();
        List<Executable> wrong = List.of(
                () -> options.withLinger(Duration.ofMillis(99)),
                () -> options.withGrace(Duration.ofNanos(1)),
                () -> options.withGrace(Duration.ofMillis(-1)),
                () -> options.withGrace(Duration.ofMinutes(61)),
                () -> options.withTtl(Duration.ofNanos(1)),
                () -> Once.text().withKeep(Duration.ZERO));
        wrong.forEach(each -> assertThrows(IllegalArgumentException.class, each));
    }
}
