package io.github.redislock.spring;

import io.github.redislock.LockOptions;

import org.springframework.boot.context.properties.ConfigurationProperties;

import java.time.Duration;

/** The properties {@code redis-lock.*}. */
@ConfigurationProperties("redis-lock")
public class RedisLockProperties {
    private static final LockOptions DEFAULTS = LockOptions.defaults();

    /** Whether anything of this is configured. */
    private boolean enabled = true;

    /** Lease of a lock that is held until it is unlocked. It is renewed at a third of this. */
    private Duration ttl = DEFAULTS.ttl();

    /** Longest wait that is asked of the server at once. */
    private Duration slice = DEFAULTS.slice();

    /** How long the server keeps a waiter's place while nobody listens for it. Zero keeps none. */
    private Duration grace = DEFAULTS.grace();

    /** How long a command is sent again while the server is out of reach. */
    private Duration reconnect = DEFAULTS.reconnect();

    /**
     * Whether a server without the module is used by SET NX PX and scripts: no queue, no fence, and
     * no lockAtLeastFor.
     */
    private boolean fallback = DEFAULTS.fallback();

    private final Registry registry = new Registry();

    private final Shedlock shedlock = new Shedlock();

    /** For the binder. */
    public RedisLockProperties() {}

    /**
     * Whether anything of this is configured.
     *
     * @return true by default
     */
    public boolean isEnabled() {
        return enabled;
    }

    /**
     * Sets it.
     *
     * @param enabled whether anything of this is configured
     */
    public void setEnabled(boolean enabled) {
        this.enabled = enabled;
    }

    /**
     * The lease of a lock that is held until it is unlocked.
     *
     * @return 30 s by default
     */
    public Duration getTtl() {
        return ttl;
    }

    /**
     * Sets it.
     *
     * @param ttl the lease
     */
    public void setTtl(Duration ttl) {
        this.ttl = ttl;
    }

    /**
     * The longest wait that is asked of the server at once.
     *
     * @return 10 s by default
     */
    public Duration getSlice() {
        return slice;
    }

    /**
     * Sets it.
     *
     * @param slice the longest wait
     */
    public void setSlice(Duration slice) {
        this.slice = slice;
    }

    /**
     * How long the server keeps a waiter's place while nobody listens for it.
     *
     * @return 5 s by default
     */
    public Duration getGrace() {
        return grace;
    }

    /**
     * Sets it.
     *
     * @param grace how long; zero keeps no place
     */
    public void setGrace(Duration grace) {
        this.grace = grace;
    }

    /**
     * How long a command is sent again while the server is out of reach.
     *
     * @return 3 s by default
     */
    public Duration getReconnect() {
        return reconnect;
    }

    /**
     * Sets it.
     *
     * @param reconnect how long
     */
    public void setReconnect(Duration reconnect) {
        this.reconnect = reconnect;
    }

    /**
     * Whether a server without the module is used by {@code SET NX PX} and scripts.
     *
     * @return false by default
     */
    public boolean isFallback() {
        return fallback;
    }

    /**
     * Sets it.
     *
     * @param fallback whether it is used
     */
    public void setFallback(boolean fallback) {
        this.fallback = fallback;
    }

    /**
     * Of Spring Integration's registry.
     *
     * @return its properties
     */
    public Registry getRegistry() {
        return registry;
    }

    /**
     * Of ShedLock's provider.
     *
     * @return its properties
     */
    public Shedlock getShedlock() {
        return shedlock;
    }

    /** {@code redis-lock.registry.*}. */
    public static class Registry {
        /** Whether there is a LockRegistry. */
        private boolean enabled = true;

        /** Prefix of the keys of all locks of the registry. */
        private String keyPrefix = RedisLockRegistry.DEFAULT_PREFIX;

        /** For the binder. */
        public Registry() {}

        /**
         * Whether there is a {@code LockRegistry}.
         *
         * @return true by default
         */
        public boolean isEnabled() {
            return enabled;
        }

        /**
         * Sets it.
         *
         * @param enabled whether there is one
         */
        public void setEnabled(boolean enabled) {
            this.enabled = enabled;
        }

        /**
         * The prefix of the keys of all locks of the registry.
         *
         * @return {@code lock-registry:} by default
         */
        public String getKeyPrefix() {
            return keyPrefix;
        }

        /**
         * Sets it.
         *
         * @param keyPrefix the prefix
         */
        public void setKeyPrefix(String keyPrefix) {
            this.keyPrefix = keyPrefix;
        }
    }

    /** {@code redis-lock.shedlock.*}. */
    public static class Shedlock {
        /** Whether there is a LockProvider, where redis-lock-shedlock is on the class path. */
        private boolean enabled = true;

        /** Prefix of the keys of all locks of the provider. */
        private String keyPrefix = "job-lock:default:";

        /** For the binder. */
        public Shedlock() {}

        /**
         * Whether there is a {@code LockProvider}.
         *
         * @return true by default
         */
        public boolean isEnabled() {
            return enabled;
        }

        /**
         * Sets it.
         *
         * @param enabled whether there is one
         */
        public void setEnabled(boolean enabled) {
            this.enabled = enabled;
        }

        /**
         * The prefix of the keys of all locks of the provider.
         *
         * @return that of ShedLock's own providers for Redis by default
         */
        public String getKeyPrefix() {
            return keyPrefix;
        }

        /**
         * Sets it.
         *
         * @param keyPrefix the prefix
         */
        public void setKeyPrefix(String keyPrefix) {
            this.keyPrefix = keyPrefix;
        }
    }
}
