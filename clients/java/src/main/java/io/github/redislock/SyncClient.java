package io.github.redislock;

import io.github.redislock.Claim.Mode;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.stream.Stream;

/** Joins the engine, and knows what each thread holds. */
final class SyncClient implements RedisLockClient {
    private record Key(String name, Thread owner) {}

    /** What is done at the end, whatever comes before it. */
    private interface Ending extends AutoCloseable {
        @Override
        void close();
    }

    private record Sides(RedisLock readLock, RedisLock writeLock) implements RedisReadWriteLock {}

    private final Map<Key, Hold> holds = new ConcurrentHashMap<>();
    final Engine engine;

    SyncClient(Driver driver, LockOptions options) {
        this.engine = new Engine(driver, options, false);
    }

    static boolean has(String driver) {
        try {
            Class.forName(driver, false, SyncClient.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }

    @Override
    public RedisLock lock(String name) {
        return new SyncLock(this, Claim.one(name, Mode.EXCLUSIVE));
    }

    @Override
    public RedisReadWriteLock readWriteLock(String name) {
        return new Sides(new SyncLock(this, Claim.one(name, Mode.SHARED)), lock(name));
    }

    @Override
    public RedisSemaphore semaphore(String name, int permits) {
        return new SyncLock(this, Claim.permit(name, permits));
    }

    @Override
    public RedisMultiLock multiLock(RedisLock... locks) {
        return new SyncLock(this, Claim.all(Stream.of(locks).map(this::claim).toList()));
    }

    private Claim claim(RedisLock lock) {
        if (lock instanceof SyncLock mine && mine.client() == this) {
            return mine.claim();
        }
        throw new IllegalArgumentException(lock.getName() + " is of another client");
    }

    @Override
    public boolean runOnce(
            String name, Duration lockAtMostFor, Duration lockAtLeastFor, Consumer<RedisHold> job) {
        long mostMs = Lease.jobMs(lockAtMostFor, lockAtLeastFor);
        SyncLock lock = new SyncLock(this, Claim.one(name, Mode.EXCLUSIVE));
        SyncHold held = SyncLock.uninterrupted(() -> lock.handedOut(0, mostMs, false));
        if (held == null) {
            return false;
        }
        Hold hold = held.hold();
        Engine.join(() -> engine.keeper.beginJob(hold, lockAtLeastFor.toMillis()));
        Ending ending = () -> Engine.join(() -> engine.keeper.endJob(hold));
        try (ending) { // The job's own error comes first.
            job.accept(held);
        }
        return true;
    }

    /** What the calling thread holds, by the client's own clock; null when nothing. */
    Hold mine(String name) {
        Hold hold = holds.get(new Key(name, Thread.currentThread()));
        if (hold != null && hold.isEnded()) {
            engine.keeper.lose(hold, Keeper.ENDED); // Unless the clock was quicker.
            forget(hold);
            return null;
        }
        return hold;
    }

    /** Remembers it as the calling thread's. */
    void add(Hold hold) {
        hold.claim.names().forEach(name -> holds.put(new Key(name, hold.owner), hold));
        hold.whenLost = reason -> forget(hold);
        engine.keeper.watch(hold);
    }

    void forget(Hold hold) {
        hold.claim.names().forEach(name -> holds.remove(new Key(name, hold.owner), hold));
    }

    @Override
    public <T> T once(String name, Once<T> how, Callable<? extends T> make) throws Exception {
        return new OnceRun<>(engine, name, how).get(make);
    }

    @Override
    public void close() {
        engine.close();
        holds.clear();
    }
}
