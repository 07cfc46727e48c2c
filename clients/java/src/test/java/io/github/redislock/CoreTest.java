package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.stream.*;

/** The rules that need no server. */
class CoreTest {
    private static final long MS = 1_000_000;

    private static Stream<String> lines(String vector) throws IOException {
        return Files.lines(Path.of("../vectors", vector)).filter(line -> !line.startsWith("#"));
    }

    @Test
    void theTableOfErrorsIsTheOneOfAllAdapters() throws Exception {
        Map<Replies.Kind, Set<String>> shared = lines("errors.txt")
                .map(line -> line.split("\\s+"))
                .collect(Collectors.groupingBy(
                        words -> Replies.Kind.valueOf(words[1].toUpperCase()),
                        Collectors.mapping(words -> words[0], Collectors.toSet())));
        assertEquals(shared, Replies.WORDS);
        assertEquals(Replies.Kind.TEMPORARY, Replies.kind("BUSY Redis is busy running a script."));
        assertEquals(Replies.Kind.FINAL, Replies.kind("NEWWORD of a newer server"));
    }

    @Test
    void noSuchCommandIsKnownInEveryWording() throws Exception {
        for (String line : lines("unknown.txt").toList()) {
            String[] parts = line.split(" ", 2);
            boolean unknown = Replies.isUnknown(new Request("LOCK.ACQUIRE"), parts[1]);
            assertEquals(parts[0].equals("lacks"), unknown, line);
        }
        // It may speak of the command that is guarded.
        Request exec = new Request("LOCK.EXEC");
        assertFalse(Replies.isUnknown(exec, "ERR unknown command 'FOO'"));
        assertTrue(Replies.isUnknown(exec, "ERR unknown command 'LOCK.EXEC'"));
    }

    @Test
    void aTtlCountsFromTheSendingLessTheDrift() {
        Lease lease = new Lease(() -> 5_000 * MS, -1, 5_000 * MS);
        lease.begin(5_000 * MS, 200_000);
        long sent = lease.sends(100_000);
        assertEquals(98_998 * MS, lease.leftNanos(), "it is shorter, answer or not");
        assertTrue(lease.answered(sent));
        lease.answered(lease.sends(200_000));
        assertEquals(200_000, lease.leftMs());
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

    /** A class path that has this client and no driver. */
    @Test
    void theErrorNamesTheArtifactsToAdd() throws Exception {
        URL classes =
                RedisLockClient.class.getProtectionDomain().getCodeSource().getLocation();
        try (URLClassLoader alone =
                new URLClassLoader(new URL[] {classes}, ClassLoader.getPlatformClassLoader())) {
            Method connect = alone.loadClass(RedisLockClient.class.getName())
                    .getMethod("connect", String.class);
            Throwable refused = assertThrows(
                            InvocationTargetException.class,
                            () -> connect.invoke(null, "redis://127.0.0.1:1"))
                    .getCause();
            assertInstanceOf(IllegalStateException.class, refused);
            String text = refused.getMessage();
            assertTrue(text.contains("redis.clients:jedis"), text);
            assertTrue(text.contains("io.lettuce:lettuce-core"), text);
        }
    }
}
