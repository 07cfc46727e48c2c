package io.github.redislock;

/**
 * The server has no redis-lock module, or what was asked for is not available in the fallback that
 * does without it. Its text says how to load the module, and what {@link
 * LockOptions#withFallback(boolean)} loses.
 */
public class ModuleMissingException extends UnsupportedOperationException {
    private static final long serialVersionUID = 1;

    ModuleMissingException(String text, Throwable cause) {
        super(text, cause);
    }
}
