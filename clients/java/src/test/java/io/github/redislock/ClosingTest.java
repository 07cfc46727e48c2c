package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.AfterEach;

import java.text.MessageFormat;
import java.util.*;
import java.util.concurrent.*;
import java.util.logging.Logger;

/** Tests that close at their end what they have opened, and hear of losses. */
abstract class ClosingTest {
    private final Deque<AutoCloseable> open = new ArrayDeque<>();
    final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    final LockOptions patient = LockOptions.defaults().withOnLost(lost::add);

    /** What was opened last is closed first. */
    <C extends AutoCloseable> C closing(C one) {
        open.addFirst(one);
        return one;
    }

    @AfterEach
    void closeAll() {
        open.forEach(each -> Other.quietly(each::close));
        open.clear();
    }

    /** What the client logs from now on. */
    List<String> warnings() {
        List<String> said = new CopyOnWriteArrayList<>();
        Logger log = Logger.getLogger("io.github.redislock");
        log.setFilter(line -> {
            said.add(MessageFormat.format(line.getMessage(), line.getParameters()));
            return false;
        });
        closing(() -> log.setFilter(null));
        return said;
    }

    LostLock awaitLost() throws InterruptedException {
        LostLock told = lost.poll(Eventually.BOUND.toSeconds(), TimeUnit.SECONDS);
        assertNotNull(told, "nobody was told of a lost lock");
        return told;
    }

    /** What it throws has this in its text. */
    static void assertSays(Class<? extends Exception> kind, String text, Other.Action action) {
        Exception failed = assertThrows(kind, action::run);
        assertTrue(failed.toString().contains(text), failed.toString());
    }
}
