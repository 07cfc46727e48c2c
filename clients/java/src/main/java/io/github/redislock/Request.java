package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command for the server, in the terms of no driver. */
final class Request {
    /** A key tells a cluster's client where to send the command. */
    record Word(byte[] bytes, boolean isKey) {}

    final String command;
    private final List<Word> words = new ArrayList<>();

    /** How long the server may wait before it answers; 0 where it answers at once. */
    long blockMs;

    /** For how long the server keeps the place in the queue when nobody listens for it. */
    long keepMs;

    /** How soon the hold ends with its connection; below 0 where it is bound to none. */
    long lingerMs = -1;

    Request(String command) {
        this.command = command;
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
        for (Word word : words) {
            if (word.isKey()) {
                return word.bytes();
            }
        }
        return new byte[0];
    }

    boolean lingers() {
        return lingerMs >= 0;
    }

    /** The same, to be answered at once; {@code placed} where it takes a place all the same. */
    Request atOnce(boolean placed) {
        Request request = new Request(command);
        request.words.addAll(words);
        request.keepMs = placed ? keepMs : 0;
        request.lingerMs = lingerMs;
        return request;
    }

    /** What follows the command's name. */
    List<Word> words() {
        List<Word> all = new ArrayList<>(words);
        option(all, "BLOCK", blockMs, blockMs > 0);
        option(all, "KEEP", keepMs, keepMs > 0);
        option(all, "LINGER", lingerMs, lingers());
        return all;
    }

    private static void option(List<Word> words, String name, long ms, boolean wanted) {
        if (wanted) {
            words.add(word(name));
            words.add(word(ms));
        }
    }
}
