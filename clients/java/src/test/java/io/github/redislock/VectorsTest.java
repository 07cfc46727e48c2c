package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** Plays the scenarios of clients/vectors, which all the adapters have in common. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class VectorsTest {
    private final Map<String, TestServer> servers = new HashMap<>();

    @BeforeAll
    void startServers() {
        servers.put("", TestServer.start());
        servers.put("plain", TestServer.start(TestServer.VERSION, "--without-module"));
        servers.put("strict", servers.get("plain"));
        servers.put("bounded", TestServer.startBounded(2_000));
    }

    @AfterAll
    void stopServers() {
        servers.values().stream().distinct().forEach(TestServer::close);
    }

    @TestFactory
    Stream<DynamicTest> scenarios() throws IOException {
        String text = Files.readString(Path.of("../vectors/scenarios.txt"));
        return Stream.of(text.split("\nscenario "))
                .skip(1)
                .filter(scenario -> !scenario.lines().findFirst().get().endsWith("not in java"))
                .map(this::scenario);
    }

    private DynamicTest scenario(String text) {
        List<String> lines = text.lines().filter(line -> !line.isBlank()).toList();
        String name = lines.get(0);
        String place = name.contains(" on ") ? name.substring(name.indexOf(" on ") + 4) : "";
        return DynamicTest.dynamicTest(name, () -> {
            TestServer server = servers.getOrDefault(place, servers.get(""));
            try (Play play = new Play(server, place.equals("plain"))) {
                lines.stream().skip(1).forEach(play::line);
            }
        });
    }

    private static String named(Supplier<Object> step) {
        try {
            return String.valueOf(step.get());
        } catch (ModuleMissingException missing) {
            return "missing";
        } catch (LockCancelledException cancelled) {
            return "cancelled";
        } catch (IllegalMonitorStateException lost) {
            return "lost";
        } catch (IllegalArgumentException refused) {
            assertTrue(refused.getMessage().contains("max-ttl"), refused.getMessage());
            return "too-long";
        }
    }

    private static final class Play implements AutoCloseable {
        private final TestServer server;
        private final boolean fallback;
        private final Map<String, Actor> actors = new HashMap<>();

        Play(TestServer server, boolean fallback) {
            this.server = server;
            this.fallback = fallback;
            server.redis.flushAll();
            server.ask("CONFIG", "RESETSTAT");
        }

        void line(String line) {
            List<String> words = new ArrayList<>(List.of(line.split(" ")));
            String want = null;
            if (words.size() > 2 && words.get(words.size() - 2).equals("=")) {
                want = words.remove(words.size() - 1);
                words.remove(words.size() - 1);
            }
            String got = step(words.remove(0), words);
            if (want != null) {
                assertEquals(want, got, line);
            }
        }

        private String step(String subject, List<String> words) {
            switch (subject) {
                case "server" -> {
                    Object[] more = words.subList(1, words.size()).toArray();
                    return String.valueOf(server.ask(words.get(0), more));
                }
                case "queue" ->
                    Eventually.isTrue(
                            "so many wait",
                            () -> server.waiting(words.get(0)) == Long.parseLong(words.get(1)));
                case "places" -> {
                    return Long.toString(server.waiting(words.get(0)));
                }
                case "gone" ->
                    Eventually.isTrue("it ends", () -> !server.redis.exists(words.get(0)));
                case "calls" -> {
                    Matcher calls = Pattern.compile("cmdstat_" + words.get(0) + ":calls=(\\d+)")
                            .matcher(server.info("commandstats").toLowerCase());
                    return calls.find() ? calls.group(1) : "0";
                }
                case "rises" -> assertTrue(fence(words.get(0)) < fence(words.get(1)));
                case "fence" -> {
                    return Long.toString(fence(words.get(0)));
                }
                case "pause" -> Eventually.pause(Long.parseLong(words.get(0)));
                default -> {
                    Actor actor =
                            actors.computeIfAbsent(subject, one -> new Actor(server, fallback));
                    List<String> more = words.subList(1, words.size());
                    switch (words.get(0)) {
                        case "begin" ->
                            actor.pending = CompletableFuture.supplyAsync(
                                    () -> actor.does(more), task -> new Thread(task).start());
                        case "end" -> {
                            return Other.result(actor.pending);
                        }
                        default -> {
                            return actor.does(words);
                        }
                    }
                }
            }
            return "";
        }

        private long fence(String actor) {
            return actors.get(actor).hold.fence();
        }

        @Override
        public void close() {
            actors.values().forEach(actor -> actor.locks.close());
        }
    }

    /** A program with a client of its own, and what it holds. */
    private static final class Actor {
        private final TestServer server;
        private final boolean fallback;
        private final CountDownLatch told = new CountDownLatch(1);
        RedisLockClient locks;
        RedisHold hold;
        Future<String> pending;
        private long ttlMs;
        private String kind;
        private List<String> names;

        Actor(TestServer server, boolean fallback) {
            this.server = server;
            this.fallback = fallback;
            locks = RedisLockClient.connect(server.url(), options());
        }

        private LockOptions options() {
            return LockOptions.defaults().withFallback(fallback);
        }

        String does(List<String> words) {
            List<String> more = words.subList(1, words.size());
            return named(() -> switch (words.get(0)) {
                case "release" -> {
                    hold.release();
                    yield "ok";
                }
                case "renew" -> renew(more);
                case "check" -> hold.check() ? "yes" : "no";
                case "exec" ->
                    hold.exec(more.get(0), more.subList(1, more.size()).toArray());
                case "keep" -> keep();
                case "told" -> awaitNews();
                case "once" -> once(more);
                default -> take(words.get(0), more);
            });
        }

        private String renew(List<String> words) {
            long ms = words.isEmpty() ? ttlMs : Long.parseLong(words.get(0));
            try {
                return hold.renew(Duration.ofMillis(ms)) ? "ok" : "lost";
            } catch (RuntimeException denied) {
                if (String.valueOf(denied.getMessage()).contains("NOPERM")) {
                    return "denied";
                }
                throw denied;
            }
        }

        /** Only a hold without a lease of its own is renewed, so it is taken once more. */
        private String keep() {
            hold.release();
            LockOptions kept = options().withTtl(Duration.ofMillis(ttlMs));
            reconnect(kept.withOnLost(news -> told.countDown()));
            hold = kind.equals("permit")
                    ? locks.semaphore(names.get(0), Integer.parseInt(names.get(1)))
                            .tryAcquire()
                    : lock().tryAcquire();
            return "";
        }

        private void reconnect(LockOptions options) {
            locks.close();
            locks = RedisLockClient.connect(server.url(), options);
        }

        private String awaitNews() {
            try {
                assertTrue(told.await(10, TimeUnit.SECONDS));
            } catch (InterruptedException cut) {
                throw new IllegalStateException(cut);
            }
            return "";
        }

        private String once(List<String> words) {
            Duration most = Duration.ofMillis(Long.parseLong(words.get(1)));
            Duration least = Duration.ofMillis(Long.parseLong(words.get(2)));
            return locks.runOnce(words.get(0), most, least, hold -> {}) ? "ran" : "skipped";
        }

        private String take(String what, List<String> words) {
            kind = what;
            names = words.stream().filter(word -> !word.contains("=")).toList();
            ttlMs = option(words, "ttl", 30_000);
            long waitMs = option(words, "wait", 0);
            long lingerMs = option(words, "linger", -1);
            if (lingerMs >= 0) {
                reconnect(options().withLinger(Duration.ofMillis(lingerMs)));
            }
            try {
                hold = kind.equals("permit")
                        ? locks.semaphore(names.get(0), Integer.parseInt(names.get(1)))
                                .tryAcquire(waitMs, ttlMs, TimeUnit.MILLISECONDS)
                        : lock().tryAcquire(waitMs, ttlMs, TimeUnit.MILLISECONDS);
            } catch (InterruptedException cut) {
                throw new IllegalStateException(cut);
            }
            return hold == null ? "busy" : "held";
        }

        private ThreadLock lock() {
            String name = names.get(0);
            return switch (kind) {
                case "read" -> locks.readWriteLock(name).readLock();
                case "write" -> locks.readWriteLock(name).writeLock();
                case "multi" -> {
                    int slash = names.contains("/") ? names.indexOf("/") : names.size();
                    Stream<RedisLock> exclusive = names.stream().limit(slash).map(locks::lock);
                    Stream<RedisLock> shared = names.stream()
                            .skip(slash + 1L)
                            .map(each -> locks.readWriteLock(each).readLock());
                    yield locks.multiLock(
                            Stream.concat(exclusive, shared).toArray(RedisLock[]::new));
                }
                default -> locks.lock(name);
            };
        }

        private static long option(List<String> words, String name, long otherwise) {
            return words.stream()
                    .map(word -> Arrays.asList(word.split("=")))
                    .filter(parts -> parts.get(0).equals(name))
                    .mapToLong(parts -> Long.parseLong(parts.get(1)))
                    .findFirst()
                    .orElse(otherwise);
        }
    }
}
