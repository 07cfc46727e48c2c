package io.github.redislock;

import java.util.concurrent.TimeUnit;

/** Hands out holds that belong to no thread: permits, or those of a lock. */
class SyncSemaphore implements RedisSemaphore {
    final SyncClient client;
    final Claim claim;

    SyncSemaphore(SyncClient client, Claim claim) {
        this.client = client;
        this.claim = claim;
    }

    private RedisHold handOut(long waitNanos, long leaseMs) throws InterruptedException {
        return handedOut(client.take(claim, Math.max(0, waitNanos), leaseMs, true));
    }

    private RedisHold handedOut(Hold hold) {
        return hold == null ? null : new SyncHold(client.keeper, hold);
    }

    @Override
    public RedisHold acquire() throws InterruptedException {
        return handOut(Long.MAX_VALUE, Leases.RENEWED);
    }

    @Override
    public RedisHold acquire(long lease, TimeUnit unit) throws InterruptedException {
        return handOut(Long.MAX_VALUE, Leases.ms(lease, unit));
    }

    @Override
    public RedisHold tryAcquire() {
        return handedOut(client.takeAtOnce(claim, Leases.RENEWED));
    }

    @Override
    public RedisHold tryAcquire(long time, TimeUnit unit) throws InterruptedException {
        return handOut(unit.toNanos(time), Leases.RENEWED);
    }

    @Override
    public RedisHold tryAcquire(long time, long lease, TimeUnit unit) throws InterruptedException {
        return handOut(unit.toNanos(time), Leases.ms(lease, unit));
    }

    @Override
    public int availablePermits() {
        Object holders = Engine.join(() -> client.engine.info(getName())).get("holder-count");
        if (client.engine.fallback.isUsed()) {
            throw Fallback.lacks(Fallback.SEMAPHORE);
        }
        return (int) Math.max(0, claim.limit() - (holders instanceof Long count ? count : 0));
    }

    @Override
    public String getName() {
        return claim.name();
    }
}
