package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** Plays the scenarios of clients/vectors, which all the adapters have in common, and its own. */
@ParameterizedClass
@MethodSource("parts")
@Execution(ExecutionMode.CONCURRENT)
class VectorsTest {
    private final Map<String, TestServer> servers = new HashMap<>();
    private final Way way;
    private final int part;

    VectorsTest(Way way, int part) {
        this.way = way;
        this.part = part;
    }

    /** Most of them wait, so each way plays its scenarios in two parts at once. */
    static Stream<Arguments> parts() {
        return Stream.of(Way.values())
                .flatMap(way -> Stream.of(Arguments.of(way, 0), Arguments.of(way, 1)));
    }

    @BeforeEach
    void startServers() {
        servers.put("", TestServer.start());
        servers.put("plain", TestServer.withoutModule());
        servers.put("strict", servers.get("plain"));
        servers.put("bounded", TestServer.start("max-ttl", "2000"));
    }

    @AfterEach
    void stopServers() {
        servers.values().stream().distinct().forEach(TestServer::close);
    }

    @TestFactory
    @Execution(ExecutionMode.SAME_THREAD)
    Stream<DynamicTest> scenarios() {
        AtomicInteger at = new AtomicInteger();
        String own = "../java/src/test/resources/scenarios.txt";
        return Stream.of("scenarios.txt", "faults.txt", "once.txt", own)
                .map(file -> Other.quietly(() -> Files.readString(Path.of("../vectors", file))))
                .flatMap(text -> Stream.of(text.split("\nscenario ")).skip(1))
                .filter(this::isOfDriver)
                .filter(any -> at.getAndIncrement() % 2 == part)
                .map(this::scenario);
    }

    private boolean isOfDriver(String scenario) {
        String name = scenario.lines().findFirst().get();
        return !name.endsWith("not in java")
                && (!name.matches(".* by [A-Z_ ]+") || (name + " ").contains(" " + way + " "))
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
            try (Play play = new Play(server, place.equals("plain"), FAULT.matcher(text).find())) {
                lines.stream().skip(1).forEach(play::line);
            }
        });
    }

    /** The steps for which a program is behind a proxy, which makes it slower. */
    private static final Pattern FAULT = Pattern.compile("(?m)^(cut|. (silent|deaf|late|drops"
            + "|loses-requests|forgotten|answers|swallows|holds|withholds))");

    private static final Map<String, String> LOSSES = Map.of(
            Keeper.GONE, "gone",
            Keeper.ENDED, "ended",
            Keeper.NOT_RENEWED, "unrenewed",
            Keeper.CUT, "cut");

    private static LockOptions chosen(LockOptions options, List<String> words) {
        for (String word : words) {
            Duration time = word.contains("=") ? ms(word.substring(word.indexOf('=') + 1)) : null;
            options = switch (word.split("=")[0]) {
                case "ttl" -> options.withTtl(time);
                case "slice" -> options.withSlice(time);
                case "grace" -> options.withGrace(time);
                case "linger" -> options.withLinger(time);
                case "reconnect" -> options.withReconnect(time);
                default -> options;
            };
        }
        return options;
    }

    private static final class MakerFailedException extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static String named(Callable<Object> step) {
        try {
            return String.valueOf(step.call());
        } catch (MakerFailedException failed) {
            return "failed";
        } catch (TimeoutException over) {
            return "busy";
        } catch (ModuleMissingException missing) {
            return "missing";
        } catch (LockCancelledException cancelled) {
            return "cancelled";
        } catch (IllegalMonitorStateException lost) {
            return "lost";
        } catch (Exception other) {
            return ERRORS.stream()
                    .filter(each -> other.toString().matches(".*" + each[0] + ".*"))
                    .map(each -> each[1])
                    .findFirst()
                    .orElseThrow(() -> new AssertionError(other));
        }
    }

    private static final List<String[]> ERRORS = List.of(
            new String[] {"lease.*ttl.*lockAtMostFor.*ERR .* lock.max-ttl", "too-long"},
            new String[] {"atLeast.*ERR .* lock.max-ttl", "too-long"},
            new String[] {"NOPERM", "denied"},
            new String[] {"WRONGTYPE", "wrong-type"},
            new String[] {"READONLY", "demoted"},
            new String[] {"JedisConnectionException", "unanswered"});

    private static String done(Other.Action action) {
        Other.quietly(action);
        return "";
    }

    private static String awaits(Callable<Boolean> condition) {
        return done(() -> Eventually.isTrue("it comes about", condition));
    }

    private static String yes(boolean is) {
        return is ? "yes" : "no";
    }

    private static Duration ms(String number) {
        return Duration.ofMillis(Long.parseLong(number));
    }

    /** A scenario, with what its programs share. */
    private final class Play implements AutoCloseable {
        private final TestServer server;
        private final boolean fallback;
        private final boolean faulty;
        private final Map<String, Actor> actors = new HashMap<>();
        private final AtomicInteger made = new AtomicInteger();

        Play(TestServer server, boolean fallback, boolean faulty) {
            this.server = server;
            this.fallback = fallback;
            this.faulty = faulty;
            server.ask("REPLICAOF", "NO", "ONE"); // What one that failed has left.
            server.ask("ACL", "SETUSER", "default", "+@all");
            server.ask("FLUSHALL");
            server.ask("CONFIG", "RESETSTAT");
        }

        void line(String line) {
            List<String> words = new ArrayList<>(List.of(line.split(" ")));
            int at = words.size() - 2;
            if (at > 0 && words.get(at).equals("=")) {
                String got = step(words.get(0), words.subList(1, at));
                assertEquals(words.get(at + 1), got, line);
            } else {
                step(words.get(0), words.subList(1, words.size()));
            }
        }

        private String step(String subject, List<String> words) {
            String first = words.isEmpty() ? "" : words.get(0);
            return switch (subject) {
                case "server" ->
                    String.valueOf(server.ask(words.stream()
                            .map(word -> word.startsWith("@") && word.length() < 3
                                    ? server.holders(word.substring(1)).get(0)
                                    : word)
                            .toArray()));
                case "sent" -> awaits(() -> server.calls(first) >= Integer.parseInt(words.get(1)));
                case "left" -> {
                    Duration left = Duration.ofMillis(server.leftMs(first));
                    yield yes(left.compareTo(ms(words.get(1))) > 0
                            && left.compareTo(ms(words.get(2))) <= 0);
                }
                // Neither by a connection that waits nor by one that is told.
                case "absent" ->
                    awaits(() -> server.absent(first) == 1
                            || server.tells(first)
                                    && server.subscriptions().size() < actors.size());
                case "left-by-all" ->
                    awaits(() -> !server.ask("CLIENT", "LIST").toString().contains("cmd=lock"));
                case "mode" ->
                    awaits(() -> server.ask("LOCK.INFO", first)
                            .toString()
                            .startsWith("[mode, " + words.get(1)));
                case "rejected" ->
                    awaits(() -> server.info("commandstats")
                            .toLowerCase()
                            .matches("(?s).*" + first + ":[^\\n]*rejected_calls=[1-9].*"));
                case "queue" ->
                    awaits(() -> server.waiting(first) == Integer.parseInt(words.get(1)));
                case "places" -> String.valueOf(server.waiting(first));
                case "gone" -> awaits(() -> !server.isLocked(first));
                case "calls" -> String.valueOf(server.calls(first));
                case "rises" -> awaits(() -> fence(first) < fence(words.get(1)));
                case "fence" -> String.valueOf(fence(first));
                case "pause" -> done(() -> Thread.sleep(Long.parseLong(first)));
                case "cut" -> done(() -> actor(first).proxy.cut(-1));
                case "join" -> done(() -> actor(first).proxy.connectDelayMs = 0);
                case "busy" -> busy(first);
                case "lock" -> Once.lock(first);
                case "made" -> String.valueOf(made.get());
                default -> actor(subject).step(first, words.subList(1, words.size()));
            };
        }

        private Actor actor(String name) {
            return actors.computeIfAbsent(name, one -> Other.quietly(() -> new Actor(this)));
        }

        /** By a script without end, which is killed after a while. */
        private String busy(String ms) {
            server.ask("CONFIG", "SET", "busy-reply-threshold", 100);
            CompletableFuture.runAsync(() -> server.ask("EVAL", "while true do end", 0));
            awaits(() -> {
                try {
                    server.ask("GET", "x");
                    return false;
                } catch (RuntimeException refused) {
                    return refused.getCause().toString().contains("BUSY");
                }
            });
            CompletableFuture.delayedExecutor(Long.parseLong(ms), TimeUnit.MILLISECONDS)
                    .execute(() -> server.ask("SCRIPT", "KILL"));
            return "";
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
        private final Play play;
        private final FaultyProxy proxy;
        private final BlockingQueue<LostLock> told = new LinkedBlockingQueue<>();
        private final CompletableFuture<String> maker = new CompletableFuture<>();
        private LockOptions options;
        private Way.Opened opened;
        private RedisHold hold;
        private Future<String> pending;
        private Way.Kind kind;
        private List<String> names;
        private long ttlMs;
        private volatile boolean makes;

        Actor(Play play) throws IOException {
            this.play = play;
            proxy = new FaultyProxy(play.server.port());
            options = LockOptions.defaults().withFallback(play.fallback).withOnLost(told::add);
            opened = way.open(url(), options);
        }

        private String url() {
            return play.faulty ? proxy.url() : play.server.url();
        }

        void close() {
            opened.close();
            Other.quietly(proxy::close);
        }

        private void reopen(LockOptions other) {
            opened.close();
            options = other;
            opened = way.open(url(), options);
        }

        String step(String verb, List<String> words) {
            return switch (verb) {
                case "options" -> done(() -> reopen(chosen(options, words)));
                case "silent" -> done(() -> proxy.silent = true);
                case "hears" -> done(() -> proxy.silent = false);
                case "deaf" -> done(() -> proxy.deaf = true);
                case "late" -> done(() -> proxy.replyDelayMs = Long.parseLong(words.get(0)));
                case "drops" -> done(() -> proxy.cut(Long.parseLong(words.get(0))));
                case "loses-requests" -> done(proxy::cutUnsubscribed);
                case "forgotten" -> done(proxy::forgetSubscribed);
                case "answers" -> {
                    String reply = String.join(" ", words.subList(2, words.size())) + "\r\n";
                    proxy.answer(words.get(0), reply, Integer.parseInt(words.get(1)));
                    yield "";
                }
                case "answered" -> awaits(() -> proxy.toAnswer.get() == 0);
                case "swallows" -> done(proxy::swallowFirstFence);
                case "swallowed" -> awaits(proxy::hasSwallowed);
                case "holds" -> {
                    proxy.heldBack = words.get(0);
                    yield awaits(() -> proxy.holdsBack);
                }
                case "withholds" -> done(() -> proxy.withheld = words.get(0));
                case "lets" -> done(proxy::heal);
                case "pending" -> yes(!pending.isDone());
                case "making" -> awaits(() -> makes);
                case "returns" -> done(() -> maker.complete(words.get(0)));
                case "raises" ->
                    done(() -> maker.completeExceptionally(new MakerFailedException()));
                case "begin" ->
                    done(() -> pending = CompletableFuture.supplyAsync(
                            () -> step(words.get(0), words.subList(1, words.size())),
                            task -> new Thread(task).start()));
                case "end" -> Other.result(pending);
                default -> named(() -> result(verb, words));
            };
        }

        private Object result(String verb, List<String> words) throws Exception {
            return switch (verb) {
                case "release" -> {
                    hold.release(words.isEmpty() ? Duration.ZERO : ms(words.get(0)));
                    yield "ok";
                }
                case "loses" -> LOSSES.get(hearsOfTheLoss().reason());
                case "renew" -> {
                    Duration ttl = words.isEmpty() ? Duration.ofMillis(ttlMs) : ms(words.get(0));
                    yield hold.renew(ttl) ? "ok" : "lost";
                }
                case "check" -> yes(hold.check());
                case "believes" -> yes(hold.isHeld());
                case "exec" ->
                    hold.exec(words.get(0), words.subList(1, words.size()).toArray());
                case "keep" -> keep();
                case "told" -> done(this::hearsOfTheLoss);
                case "once" ->
                    opened.runOnce(words.get(0), ms(words.get(1)), ms(words.get(2)), job -> {})
                            ? "ran"
                            : "skipped";
                case "get" -> get(words);
                default -> take(verb, words);
            };
        }

        /** Only a hold without a lease of its own is renewed, so it is taken once more. */
        private String keep() {
            hold.release();
            reopen(options.withTtl(Duration.ofMillis(ttlMs)));
            hold = opened.take(kind, names, 0, -1);
            return "";
        }

        private LostLock hearsOfTheLoss() throws InterruptedException {
            LostLock news = told.poll(30, TimeUnit.SECONDS);
            assertEquals(hold.fence(), news.fence());
            boolean several = kind == Way.Kind.MULTI;
            assertEquals(several ? String.join(", ", names) : names.get(0), news.name());
            return news;
        }

        private String get(List<String> words) throws Exception {
            Duration ttl = ms(option(words, "ttl", "30000"));
            if (!ttl.equals(options.ttl())) {
                reopen(options.withTtl(ttl));
            }
            Once<String> how = Once.text()
                    .withKeep(ms(option(words, "keep", "60000")))
                    .withEarly(ms(option(words, "early", "0")))
                    .withPatience(ms(option(words, "wait", "5000")));
            String value = option(words, "make", null);
            AtomicBoolean mine = new AtomicBoolean();
            String got = opened.once(words.get(0), how, () -> {
                play.made.incrementAndGet();
                makes = true;
                if (words.contains("fail=yes")) {
                    throw new MakerFailedException();
                }
                String made = value == null ? Other.result(maker) : value;
                mine.set(true);
                return made;
            });
            return (mine.get() ? "made:" : "got:") + got;
        }

        private String take(String what, List<String> words) {
            kind = Way.Kind.valueOf(what.toUpperCase());
            names = words.stream().filter(word -> !word.contains("=")).toList();
            ttlMs = Long.parseLong(option(words, "ttl", "30000"));
            String linger = option(words, "linger", null);
            if (linger != null) {
                reopen(options.withLinger(ms(linger)));
            }
            hold = opened.take(kind, names, Long.parseLong(option(words, "wait", "0")), ttlMs);
            return hold == null ? "busy" : "held";
        }

        private static String option(List<String> words, String name, String otherwise) {
            return words.stream()
                    .filter(word -> word.startsWith(name + "="))
                    .map(word -> word.substring(name.length() + 1))
                    .findFirst()
                    .orElse(otherwise);
        }
    }
}
