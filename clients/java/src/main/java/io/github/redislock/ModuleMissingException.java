package io.github.redislock;

/**
 * The server has no redis-lock module, or one too old for what was asked for, or the fallback that
 * does without it cannot do that. Its text says how to load the module, and what {@link
 * LockOptions#withFallback(boolean)} loses.
 */
public class ModuleMissingException extends UnsupportedOperationException {
    private static final long serialVersionUID = 1;

    ModuleMissingException(String text, Throwable cause) {
        super(text, cause);
    }
}
