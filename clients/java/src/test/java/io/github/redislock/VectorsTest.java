package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** Plays the scenarios of clients/vectors, which all the adapters have in common. */
@ParameterizedClass
@EnumSource
@Execution(ExecutionMode.CONCURRENT)
class VectorsTest {
    private final Map<String, TestServer> servers = new HashMap<>();
    private final Way way;

    VectorsTest(Way way) {
        this.way = way;
    }

    @BeforeEach
    void startServers() {
        servers.put("", TestServer.start());
        servers.put("plain", TestServer.withoutModule());
        servers.put("strict", servers.get("plain"));
        servers.put("bounded", TestServer.start(TestServer.VERSION, "max-ttl", "2000"));
    }

    @AfterEach
    void stopServers() {
        servers.values().stream().distinct().forEach(TestServer::close);
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> scenarios() throws IOException {
        List<DynamicTest> all = new ArrayList<>();
        for (String file : List.of("scenarios.txt", "faults.txt", "once.txt")) {
            String text = Files.readString(Path.of("../vectors", file));
            Stream.of(text.split("\nscenario "))
                    .skip(1)
                    .filter(this::isOfDriver)
                    .map(this::scenario)
                    .forEach(all::add);
        }
        return all.stream();
    }

    private boolean isOfDriver(String scenario) {
        String name = scenario.lines().findFirst().get();
        return !name.endsWith("not in java")
                && switch (way) {
                    case JEDIS_UNIFIED -> !scenario.contains("linger=");
                    // Who asks every 50 ms is never late, and told only of what ends while it asks.
                    case LETTUCE_CONNECTION ->
                        !name.matches(".*(came late|is cancelled|cancelled wait).*");
                    default -> true;
                };
    }

    private DynamicTest scenario(String text) {
        List<String> lines = text.lines().filter(line -> !line.isBlank()).toList();
        String name = lines.get(0);
        String place = name.contains(" on ") ? name.substring(name.indexOf(" on ") + 4) : "";
        return DynamicTest.dynamicTest(name, () -> {
            TestServer server = servers.getOrDefault(place, servers.get(""));
            boolean cuts = text.contains("\ncut ");
            try (Play play = new Play(server, place.equals("plain"), cuts)) {
                lines.stream().skip(1).forEach(play::line);
            }
        });
    }

    private static final class MakerFailedException extends RuntimeException {
        private static final long serialVersionUID = 1;
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
            String text = refused.getMessage();
            assertTrue(text.matches(".*lease.*ttl.*lockAtMostFor.*ERR .* lock.max-ttl"), text);
            return "too-long";
        } catch (RuntimeException denied) {
            if (String.valueOf(denied.getMessage()).contains("NOPERM")) {
                return "denied";
            }
            throw denied;
        }
    }

    private final class Play implements AutoCloseable {
        private final TestServer server;
        private final boolean fallback;
        private final boolean cuts;
        private final Map<String, Actor> actors = new HashMap<>();
        private final AtomicInteger made = new AtomicInteger();

        Play(TestServer server, boolean fallback, boolean cuts) {
            this.server = server;
            this.fallback = fallback;
            this.cuts = cuts;
            server.ask("FLUSHALL");
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
                    return String.valueOf(server.ask(words.toArray()));
                }
                case "queue" ->
                    Eventually.isTrue(
                            "so many wait",
                            () -> server.waiting(words.get(0)) == Long.parseLong(words.get(1)));
                case "places" -> {
                    return Long.toString(server.waiting(words.get(0)));
                }
                case "gone" -> Eventually.isTrue("it ends", () -> !server.isLocked(words.get(0)));
                case "calls" -> {
                    return Long.toString(server.calls(words.get(0)));
                }
                case "rises" -> assertTrue(fence(words.get(0)) < fence(words.get(1)));
                case "fence" -> {
                    return Long.toString(fence(words.get(0)));
                }
                case "pause" -> Eventually.pause(Long.parseLong(words.get(0)));
                case "cut" -> actor(words.get(0)).cut();
                case "join" -> actor(words.get(0)).proxy.join();
                case "busy" -> busy(words.get(0));
                case "lock" -> {
                    return Once.lock(words.get(0));
                }
                case "made" -> {
                    return Integer.toString(made.get());
                }
                default -> {
                    Actor actor = actor(subject);
                    List<String> more = words.subList(1, words.size());
                    switch (words.get(0)) {
                        case "making" ->
                            Eventually.isTrue("it makes", () -> actor.makes);
                        case "returns" -> actor.maker.complete(more.get(0));
                        case "raises" ->
                            actor.maker.completeExceptionally(new MakerFailedException());
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

        private Actor actor(String name) {
            return actors.computeIfAbsent(name, one -> new Actor(server, fallback, cuts, made));
        }

        /** By a script without end, which is killed after a while. */
        private void busy(String ms) {
            server.ask("CONFIG", "SET", "busy-reply-threshold", 100);
            background(() -> server.ask("EVAL", "while true do end", 0));
            Eventually.isTrue("it is busy", () -> {
                try {
                    server.ask("GET", "x");
                    return false;
                } catch (RuntimeException refused) {
                    return refused.getCause().toString().contains("BUSY");
                }
            });
            background(() -> {
                Eventually.pause(Long.parseLong(ms));
                server.ask("SCRIPT", "KILL");
            });
        }

        private static void background(Runnable action) {
            Thread thread = new Thread(action);
            thread.setUncaughtExceptionHandler((same, killed) -> {});
            thread.setDaemon(true);
            thread.start();
        }

        private long fence(String actor) {
            return actors.get(actor).hold.fence();
        }

        @Override
        public void close() {
            actors.values().forEach(Actor::close);
        }
    }

    /** A program with a client of its own, and what it holds. */
    private final class Actor {
        private final TestServer server;
        private final BlockingQueue<LostLock> told = new LinkedBlockingQueue<>();
        private LockOptions options;
        Way.Opened opened;
        Held hold;
        Future<String> pending;
        private Way.Kind kind;
        private List<String> names;
        private long ttlMs;

        FaultyProxy proxy;

        private final AtomicInteger made;
        volatile boolean makes;
        final CompletableFuture<String> maker = new CompletableFuture<>();

        Actor(TestServer server, boolean fallback, boolean cuts, AtomicInteger made) {
            this.server = server;
            this.made = made;
            options = LockOptions.defaults().withFallback(fallback).withOnLost(told::add);
            try {
                proxy = cuts ? new FaultyProxy(server.port()) : null;
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
            opened = way.open(url(), options);
        }

        private String url() {
            return proxy == null ? server.url() : proxy.url();
        }

        void cut() {
            try {
                proxy.shut();
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }

        void close() {
            opened.close();
            if (proxy != null) {
                cut();
            }
        }

        private void reopen(LockOptions other) {
            opened.close();
            options = other;
            opened = way.open(url(), options);
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
                case "believes" -> hold.isHeld() ? "yes" : "no";
                case "once" -> once(more);
                case "get" -> get(more);
                default -> take(words.get(0), more);
            });
        }

        private String renew(List<String> words) {
            long ms = words.isEmpty() ? ttlMs : Long.parseLong(words.get(0));
            return hold.renew(Duration.ofMillis(ms)) ? "ok" : "lost";
        }

        /** Only a hold without a lease of its own is renewed, so it is taken once more. */
        private String keep() {
            hold.release();
            reopen(options.withTtl(Duration.ofMillis(ttlMs)));
            hold = opened.take(kind, names, 0, -1);
            return "";
        }

        private String awaitNews() {
            try {
                LostLock news = told.poll(10, TimeUnit.SECONDS);
                assertEquals(hold.fence(), news.fence());
                assertEquals(
                        kind == Way.Kind.MULTI ? String.join(", ", names) : names.get(0),
                        news.name());
            } catch (InterruptedException cut) {
                throw new IllegalStateException(cut);
            }
            return "";
        }

        private String once(List<String> words) {
            Duration most = Duration.ofMillis(Long.parseLong(words.get(1)));
            Duration least = Duration.ofMillis(Long.parseLong(words.get(2)));
            return opened.runOnce(words.get(0), most, least, hold -> {}) ? "ran" : "skipped";
        }

        private String get(List<String> words) {
            Duration ttl = Duration.ofMillis(option(words, "ttl", 30_000));
            if (!ttl.equals(options.ttl())) {
                reopen(options.withTtl(ttl));
            }
            Once<String> how = Once.text()
                    .withKeep(Duration.ofMillis(option(words, "keep", 60_000)))
                    .withEarly(Duration.ofMillis(option(words, "early", 0)))
                    .withPatience(Duration.ofMillis(option(words, "wait", 5_000)));
            Optional<String> value = words.stream()
                    .filter(word -> word.startsWith("make="))
                    .map(word -> word.substring(5))
                    .findFirst();
            AtomicBoolean mine = new AtomicBoolean();
            try {
                String got = opened.once(words.get(0), how, () -> {
                    made.incrementAndGet();
                    makes = true;
                    String it = words.contains("fail=yes")
                            ? Other.result(CompletableFuture.failedFuture(
                                    new MakerFailedException()))
                            : value.isPresent() ? value.get() : Other.result(maker);
                    mine.set(true);
                    return it;
                });
                return (mine.get() ? "made:" : "got:") + got;
            } catch (MakerFailedException failed) {
                return "failed";
            } catch (TimeoutException over) {
                return "busy";
            } catch (RuntimeException other) {
                throw other;
            } catch (Exception other) {
                throw new AssertionError(other);
            }
        }

        private String take(String what, List<String> words) {
            kind = Way.Kind.valueOf(what.toUpperCase());
            names = words.stream().filter(word -> !word.contains("=")).toList();
            ttlMs = option(words, "ttl", 30_000);
            long lingerMs = option(words, "linger", -1);
            if (lingerMs >= 0) {
                reopen(options.withLinger(Duration.ofMillis(lingerMs)));
            }
            hold = opened.take(kind, names, option(words, "wait", 0), ttlMs);
            return hold == null ? "busy" : "held";
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
