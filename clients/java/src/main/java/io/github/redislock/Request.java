package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command for the server, in the terms of no library. */
final class Request {
    /** A key tells a cluster's client where to send the command. */
    record Word(byte[] bytes, boolean isKey) {}

    final String command;
    private final List<Word> words = new ArrayList<>();

    /** How long the server may wait before it answers; 0 where it answers at once. */
    long blockMs;

    /** For how long the server keeps the place in the queue when nobody listens for it. */
    long keepMs;

    /** Whether the texts of the reply are bytes, which need not be text. */
    boolean isRaw;

    /** How soon the hold ends with its connection; below 0 where it is bound to none. */
    long lingerMs = -1;

    Request(String command) {
        this.command = command;
    }

    /** Asks for all of it, and does not wait unless more is said. */
    static Request acquiring(Claim claim, String token, long ttlMs, LockOptions options) {
        Request request;
        if (claim.several()) {
            request = new Request("LOCK.MACQUIRE").add(claim.names().size());
            claim.names().forEach(request::key);
        } else if (claim.result() != null) {
            request = new Request("LOCK.ONCE").key(claim.name()).key(claim.result());
            request.isRaw = true;
        } else {
            boolean reads = claim.modes().get(0) == Mode.SHARED;
            request = new Request(reads ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE").key(claim.name());
        }
        request.add(token).add(ttlMs);
        if (claim.several()) {
            request.add("MODES");
            claim.modes().forEach(request::add);
        }
        if (claim.limit() > 0) {
            request.add("LIMIT").add(claim.limit());
        }
        if (claim.earlyMs() > 0) {
            request.add("EARLY").add(claim.earlyMs());
        }
        options.linger().ifPresent(linger -> request.lingerMs = linger.toMillis());
        return request;
    }

    static Request renewing(String name, String token, long ttlMs) {
        return new Request("LOCK.RENEW").key(name).add(token).add(ttlMs);
    }

    static Request releasing(String name, String token, long leastMs) {
        Request request = new Request("LOCK.RELEASE").key(name).add(token);
        return leastMs > 0 ? request.add("ATLEAST").add(leastMs) : request;
    }

    static Request checking(String name, String token) {
        return new Request("LOCK.CHECK").key(name).add(token);
    }

    static Request guarding(String name, String token, String command, Object... words) {
        Request request = new Request("LOCK.EXEC").key(name).add(token).add(command);
        for (Object word : words) {
            request.add(word);
        }
        return request;
    }

    Request key(String name) {
        words.add(new Word(name.getBytes(StandardCharsets.UTF_8), true));
        return this;
    }

    /** A byte array as it is, and everything else as text. */
    Request add(Object word) {
        words.add(word(word));
        return this;
    }

    private static Word word(Object word) {
        byte[] bytes =
                word instanceof byte[] raw ? raw : word.toString().getBytes(StandardCharsets.UTF_8);
        return new Word(bytes, false);
    }

    /** Empty where there is none. */
    byte[] firstKey() {
        return words.stream().filter(Word::isKey).findFirst().map(Word::bytes).orElse(new byte[0]);
    }

    /** Whether it goes by the connection that holds are bound to. */
    boolean isBound() {
        return lingerMs >= 0 || command.equals("PING");
    }

    /** What follows the command's name. */
    List<Word> words() {
        List<Word> all = new ArrayList<>(words);
        option(all, "BLOCK", blockMs, blockMs > 0);
        option(all, "KEEP", keepMs, keepMs > 0);
        option(all, "LINGER", lingerMs, lingerMs >= 0);
        return all;
    }

    private static void option(List<Word> words, String name, long ms, boolean wanted) {
        if (wanted) {
            words.add(word(name));
            words.add(word(ms));
        }
    }
}
