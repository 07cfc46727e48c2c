//! How other libraries lock: the commands that they send, in their order.

use crate::harness::{Client, Reply};

/// A library's way to lock a key. Each text is a line, or a script if it begins with a space:
/// KEYS[1] is the lock, ARGV[1] the token, ARGV[2] the ttl in milliseconds.
pub struct Old {
    pub name: &'static str,
    acquire: &'static str,
    release: &'static str,
    extend: &'static str,
    /// The reply of a granted acquire.
    granted: fn(&Reply) -> bool,
    /// The effect of its acquire on a native lock.
    pub on_native: Excluded,
}

/// How a library notices a native lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Excluded {
    /// As if another client of the library had the lock: it retries.
    Refused,
    /// By an error, which its caller sees.
    Raises,
}

pub const TTL_MS: i64 = 30_000;

const COMPARE_AND_DELETE: &str =
    " if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const COMPARE_AND_EXTEND: &str =
    " if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// redis-py's `Lock`, redsync, redlock-universal, redis-semaphore's mutex, Laravel's lock, and the
/// common hand-written one.
pub const SET_NX: Old = Old {
    name: "SET NX PX",
    acquire: "SET KEY TOKEN NX PX TTL",
    release: COMPARE_AND_DELETE,
    extend: COMPARE_AND_EXTEND,
    granted: |reply| *reply == Reply::Simple("OK".into()),
    on_native: Excluded::Refused,
};

/// @sesamecare-oss/redlock does the same.
pub const NODE_REDLOCK: Old = Old {
    name: "node-redlock",
    acquire: " if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1",
    release: " local n = 0
        if redis.call('GET', KEYS[1]) == ARGV[1] then redis.pcall('DEL', KEYS[1]) n = n + 1 end return n",
    extend: " if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1",
    granted: |reply| *reply == Reply::Int(1),
    on_native: Excluded::Refused,
};

/// A held lock is read, because the token may be the caller's own.
pub const BSM: Old = Old {
    name: "bsm/redislock",
    acquire: " if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.status_reply('OK') end
        if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then
            return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
    release: COMPARE_AND_DELETE,
    extend: COMPARE_AND_EXTEND,
    granted: |reply| *reply == Reply::Simple("OK".into()),
    on_native: Excluded::Raises,
};

/// It first checks in a separate command whether it already has the lock.
pub const PYTHON_REDIS_LOCK: Old = Old {
    name: "python-redis-lock",
    acquire: " if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.error_reply('AlreadyAcquired') end
        return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    release: " if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        local signal = 'lock-signal:' .. string.sub(KEYS[1], 6)
        redis.call('DEL', signal) redis.call('LPUSH', signal, 1) redis.call('PEXPIRE', signal, 1000)
        return redis.call('DEL', KEYS[1])",
    extend: " if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        if redis.call('TTL', KEYS[1]) < 0 then return 0 end
        return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    granted: |reply| *reply == Reply::Simple("OK".into()),
    on_native: Excluded::Raises,
};

/// A hash of owners with their number of entries. The acquire returns nil if granted, else the
/// remaining time.
pub const REDISSON: Old = Old {
    name: "Redisson's RLock",
    acquire: " if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
            redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return false end
        return redis.call('PTTL', KEYS[1])",
    release: " if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
        if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
        redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}', 0) return 1",
    extend: " if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
            redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end return 0",
    granted: |reply| *reply == Reply::Nil,
    on_native: Excluded::Raises,
};

/// The same of its reader-writer lock: the hash has a mode beside the owners.
pub const REDISSON_WRITE: Old = Old {
    name: "Redisson's RReadWriteLock",
    acquire: " if redis.call('HGET', KEYS[1], 'mode') == false then
            redis.call('HSET', KEYS[1], 'mode', 'write') redis.call('HSET', KEYS[1], ARGV[1], 1)
            redis.call('PEXPIRE', KEYS[1], ARGV[2]) return false end
        return redis.call('PTTL', KEYS[1])",
    release: " if redis.call('HGET', KEYS[1], 'mode') == false then return false end
        if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
        redis.call('DEL', KEYS[1]) return 1",
    extend: REDISSON.extend,
    granted: |reply| *reply == Reply::Nil,
    on_native: Excluded::Raises,
};

/// A sorted set of owners by their deadlines.
pub const SYMFONY: Old = Old {
    name: "Symfony's RedisStore",
    acquire: " if redis.call('TYPE', KEYS[1]).ok == 'string' then return 0 end
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', 0)
        if redis.call('EXISTS', KEYS[1]) == 1 and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
        redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    release: " if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
        return redis.call('ZREM', KEYS[1], ARGV[1])",
    extend: " if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
        return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    granted: |reply| *reply == Reply::Int(1),
    on_native: Excluded::Raises,
};

pub const ALL: [Old; 7] = [
    SET_NX,
    NODE_REDLOCK,
    BSM,
    PYTHON_REDIS_LOCK,
    REDISSON,
    REDISSON_WRITE,
    SYMFONY,
];

impl Old {
    pub fn acquire(&self, c: &mut Client, key: &str, token: &str) -> Reply {
        run(c, self.acquire, key, token)
    }

    pub fn takes(&self, c: &mut Client, key: &str, token: &str) -> bool {
        (self.granted)(&self.acquire(c, key, token))
    }

    pub fn release(&self, c: &mut Client, key: &str, token: &str) -> Reply {
        run(c, self.release, key, token)
    }

    pub fn extend(&self, c: &mut Client, key: &str, token: &str) -> Reply {
        run(c, self.extend, key, token)
    }
}

fn run(c: &mut Client, text: &str, key: &str, token: &str) -> Reply {
    let ttl = TTL_MS.to_string();
    if text.starts_with(' ') {
        return c.send(&["EVAL", text, "1", key, token, &ttl]);
    }
    let line = text.replace("KEY", key).replace("TOKEN", token);
    c.call(&line.replace("TTL", &ttl))
}
