package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** Joins what {@link Keeper} does for one hold. */
record SyncHold(Keeper keeper, Hold hold) implements RedisHold {
    @Override
    public String name() {
        return hold.claim.name();
    }

    @Override
    public String id() {
        return hold.token;
    }

    @Override
    public long fence() {
        return hold.fence;
    }

    @Override
    public boolean isHeld() {
        return !hold.isEnded();
    }

    @Override
    public boolean check() {
        return isHeld() && Engine.join(() -> keeper.check(hold));
    }

    @Override
    public boolean renew(Duration ttl) {
        return Engine.join(() -> keeper.set(hold, Lease.ms(ttl)));
    }

    @Override
    public Duration remaining() {
        return isHeld() ? Duration.ofNanos(Math.max(0, hold.lease.leftNanos())) : Duration.ZERO;
    }

    @Override
    public Object exec(String command, Object... arguments) {
        return Engine.join(() -> keeper.exec(hold, command, arguments));
    }

    @Override
    public void close() {
        released(() -> keeper.releaseAtLast(hold)); // Seldom is it tried again.
    }

    @Override
    public void release(Duration atLeast) {
        long leastMs = Math.max(Lease.leastMs(atLeast), hold.leastMs);
        released(() -> keeper.release(hold, leastMs));
    }

    @Override
    public void releaseIn(Duration rest) {
        long restMs = Lease.ms(rest);
        released(() -> keeper.releaseIn(hold, restMs));
    }

    /** Nothing more where it was given back before. */
    private void released(Supplier<CompletableFuture<Boolean>> release) {
        if (!hold.isGivenBack() && (!isHeld() || !Engine.join(release))) {
            throw Replies.notHeld(hold.claim);
        }
    }
}
