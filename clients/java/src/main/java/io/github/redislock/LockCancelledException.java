package io.github.redislock;

/** Somebody has ended the wait by {@code LOCK.CANCEL}. Nothing is held or waited for any more. */
public class LockCancelledException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    LockCancelledException(String name) {
        super("the wait for " + name + " was cancelled");
    }
}
