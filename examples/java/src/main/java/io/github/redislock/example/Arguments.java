package io.github.redislock.example;

import java.net.URI;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** What the worker was asked to do: {@code VARIANT --url URL --lock KEY --resource KEY ...}. */
record Arguments(
        URI url,
        String lock,
        String resource,
        long ttlMs,
        long blockMs,
        int writes,
        long pauseMs,
        boolean shared,
        String token) {

    static Arguments parse(List<String> words) {
        if (words.isEmpty() || !words.get(0).equals("jedis")) {
            throw new IllegalArgumentException("the only variant is: jedis");
        }
        Map<String, String> options = new HashMap<>();
        for (Iterator<String> rest = words.subList(1, words.size()).iterator(); rest.hasNext(); ) {
            String name = rest.next();
            if (!name.startsWith("--")) {
                throw new IllegalArgumentException("not an option: " + name);
            }
            boolean flag = name.equals("--shared");
            if (!flag && !rest.hasNext()) {
                throw new IllegalArgumentException(name + " needs a value");
            }
            options.put(name, flag ? "" : rest.next());
        }
        return new Arguments(
                URI.create(options.getOrDefault("--url", "redis://127.0.0.1:6379")),
                options.getOrDefault("--lock", "jobs:42"),
                options.getOrDefault("--resource", "stock:42"),
                Long.parseLong(options.getOrDefault("--ttl", "30000")),
                Long.parseLong(options.getOrDefault("--block", "10000")),
                Integer.parseInt(options.getOrDefault("--writes", "5")),
                Long.parseLong(options.getOrDefault("--pause", "100")),
                options.containsKey("--shared"),
                options.getOrDefault("--token", UUID.randomUUID().toString()));
    }
}
