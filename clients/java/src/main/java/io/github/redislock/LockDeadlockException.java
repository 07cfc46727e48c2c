package io.github.redislock;

/**
 * The wait would never end, so the server refused it: two readers asked to become the writer of one
 * lock, or a cycle of waits would be closed. The one that gets this has to unlock what it holds.
 */
public class LockDeadlockException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    LockDeadlockException(String name, String refusal) {
        super(name + ": " + refusal + "; unlock what is held first");
    }
}
