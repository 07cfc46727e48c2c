package io.github.redislock;

import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.*;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

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

    JedisClusterDriver(
            UnifiedJedis jedis, int waiters, Supplier<Map<String, ? extends Pool<?>>> pools) {
        super(jedis, waiters);
        this.pools = pools;
    }

    @Override
    Object execute(Request request, long endNanos) {
        int slot = JedisClusterCRC16.getSlot(Request.bytes(request.key));
        String address = owners.getOrDefault(slot, "");
        List<Request> sent = List.of(request);
        for (int hop = 0; hop < MOST_HOPS; hop++) {
            address = address.isEmpty() ? any() : address;
            JedisDriver node = nodes.computeIfAbsent(address, this::beside);
            if (node == null) {
                break;
            }
            try {
                Object reply = node.sendNow(sent, endNanos).get(sent.size() - 1);
                if (sent.size() == 1) {
                    owners.put(slot, address);
                }
                return reply;
            } catch (JedisMovedDataException moved) {
                address = moved.getTargetNode().toString();
                sent = List.of(request);
            } catch (JedisAskDataException ask) {
                address = ask.getTargetNode().toString();
                sent = List.of(new Request("ASKING"), request);
            } catch (JedisConnectionException outOfReach) {
                owners.remove(slot);
                failed = address;
                throw outOfReach;
            }
        }
        return super.execute(request, endNanos); // Jedis finds new nodes, and looks for them anew.
    }

    private String any() {
        List<String> all = List.copyOf(pools.get().keySet());
        return all.stream()
                .filter(each -> !each.equals(failed))
                .findFirst()
                .orElse(all.isEmpty() ? "" : all.get(0));
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
