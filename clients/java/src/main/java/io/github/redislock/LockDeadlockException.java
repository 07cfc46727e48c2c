package io.github.redislock;

/**
 * Two readers asked to become the writer of one lock, and neither can while the other still reads.
 * It is thrown to the second one, which has to give up its read lock.
 */
public class LockDeadlockException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    LockDeadlockException(String name) {
        super(
                "another reader of "
                        + name
                        + " waits to become its writer: unlock the read lock first");
    }
}
