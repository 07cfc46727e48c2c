package io.github.redislock;

import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.*;
import redis.clients.jedis.util.*;

import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * Over a {@code JedisCluster} or a {@code RedisClusterClient}: with connections of its own to each
 * node, made as the node's pool makes them. So an exhausted pool stops nothing.
 */
final class JedisClusterDriver extends UnifiedJedisDriver {
    private static final int MOST_HOPS = 5;

    /** By address, as the cluster names it. */
    private final Supplier<Map<String, ? extends Pool<?>>> pools;

    private final Map<String, JedisDriver> nodes = new ConcurrentHashMap<>();

    /** The address by slot, as far as it was told. */
    private final Map<Integer, String> owners = new ConcurrentHashMap<>();

    /** The last that was out of reach is not the first to be asked who has a slot. */
    private volatile String failed = "";

    JedisClusterDriver(UnifiedJedis jedis, Supplier<Map<String, ? extends Pool<?>>> pools) {
        super(jedis, Integer.MAX_VALUE);
        this.pools = pools;
    }

    @Override
    Object execute(Request request, long endNanos) {
        int slot = JedisClusterCRC16.getSlot(Request.bytes(request.key));
        String address = owners.get(slot);
        if (address == null && request.blockMs > 0) { // A silent node must not cost a whole slice.
            request.blockMs = Math.min(request.blockMs, Acquire.FIRST_SLICE_MS);
            long firstNanos = TimeUnit.MILLISECONDS.toNanos(2 * Acquire.FIRST_SLICE_MS);
            endNanos = Math.min(endNanos - System.nanoTime(), firstNanos) + System.nanoTime();
        }
        List<Request> sent = List.of(request);
        for (int hop = 0; hop < MOST_HOPS; hop++) {
            address = address == null ? any() : address;
            JedisDriver node = nodes.computeIfAbsent(address, this::beside);
            if (node == null) {
                break;
            }
            try {
                List<Object> replies = node.sendNow(sent, endNanos);
                if (sent.size() == 1) {
                    owners.put(slot, address);
                }
                return replies.get(sent.size() - 1);
            } catch (JedisRedirectionException moved) {
                boolean asks = moved instanceof JedisAskDataException;
                if (asks) { // Who says so has the slot still. The other one takes this request only.
                    owners.put(slot, address);
                }
                address = moved.getTargetNode().toString();
                sent = asks ? List.of(new Request("ASKING"), request) : List.of(request);
            } catch (JedisConnectionException outOfReach) {
                owners.remove(slot);
                failed = address;
                throw outOfReach;
            }
        }
        request.blockMs = 0; // A waiter keeps no connection of the pool, which has a bound.
        return super.execute(request, endNanos); // Jedis finds new nodes, and looks for them anew.
    }

    private String any() {
        Stream<String> all = pools.get().keySet().stream();
        return all.filter(each -> !each.equals(failed)).findFirst().orElse(failed);
    }

    private JedisDriver beside(String address) {
        Pool<?> pool = pools.get().get(address);
        return pool == null ? null : JedisDriver.beside(pool);
    }

    @Override
    public void close() {
        nodes.values().forEach(JedisDriver::close);
    }
}
