package io.github.redislock.example;

import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.util.SafeEncoder;

/**
 * The commands of the module, in the way in which Jedis wants to be told of commands that it does
 * not know.
 */
enum LockCommand implements ProtocolCommand {
    ACQUIRE("LOCK.ACQUIRE"),
    RLOCK("RWLOCK.RLOCK"),
    RENEW("LOCK.RENEW"),
    RELEASE("LOCK.RELEASE");

    private final byte[] raw;

    LockCommand(String name) {
        raw = SafeEncoder.encode(name);
    }

    @Override
    public byte[] getRaw() {
        return raw;
    }

    CommandArguments of(String key, String token) {
        return new CommandArguments(this).key(key).add(token);
    }
}
