package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command for the server, in the terms of no library. */
final class Request {
    final String command;

    private final List<byte[]> words = new ArrayList<>();

    /** The first key, which tells a cluster's client where to send the command. */
    String key = "";

    /** Where it stands among the words; below 0 where there is none. */
    int keyAt = -1;

    /** How long the server may wait before it answers; 0 where it answers at once. */
    long blockMs;

    /** For how long the server keeps the place in the queue when nobody listens for it. */
    long keepMs;

    /** Whether the texts of the reply are bytes, which need not be text. */
    boolean isRaw;

    /** How soon the hold ends with its connection; below 0 where it is bound to none. */
    long lingerMs = -1;

    /** Is run when the library sends it again by itself, where that can be seen. */
    Runnable whenResent = () -> {};

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
            boolean reads = claim.mode() == Claim.Mode.SHARED;
            request = new Request(reads ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE").key(claim.name());
        }
        request.add(token).add(ttlMs);
        if (claim.several()) {
            request.add("MODES");
            claim.modes().forEach(request::add);
        }
        request.option("LIMIT", claim.limit(), 1).option("EARLY", claim.earlyMs(), 1);
        options.linger().ifPresent(linger -> request.lingerMs = linger.toMillis());
        return request;
    }

    /** Of the hold that a token has on a key: the words follow it. */
    static Request ofHold(String command, String name, String token, Object... words) {
        Request request = new Request(command).key(name).add(token);
        List.of(words).forEach(request::add);
        return request;
    }

    static Request releasing(String name, String token, long leastMs) {
        return ofHold("LOCK.RELEASE", name, token).option("ATLEAST", leastMs, 1);
    }

    Request key(String name) {
        if (keyAt < 0) {
            key = name;
            keyAt = words.size();
        }
        return add(name);
    }

    /** A byte array as it is, and everything else as text. */
    Request add(Object word) {
        words.add(word instanceof byte[] raw ? raw : bytes(word.toString()));
        return this;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Unless it is less than {@code least}. */
    private Request option(String name, long value, long least) {
        return value < least ? this : add(name).add(value);
    }

    /** Whether it goes by the connection that holds are bound to. */
    boolean isBound() {
        return lingerMs >= 0 || command.equals("PING");
    }

    /** What follows the command's name. */
    List<byte[]> words() {
        Request all = new Request(command);
        all.words.addAll(words);
        all.option("BLOCK", blockMs, 1).option("KEEP", keepMs, 1).option("LINGER", lingerMs, 0);
        return all.words;
    }
}
