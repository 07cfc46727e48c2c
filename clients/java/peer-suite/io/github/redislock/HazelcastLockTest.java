package io.github.redislock;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.cp.CPSubsystem;
import com.hazelcast.cp.internal.datastructures.lock.AbstractFencedLockBasicTest;
import com.hazelcast.test.TestHazelcastInstanceFactory;

import io.github.redislock.testing.TestServer;

import org.junit.*;

import java.lang.reflect.Proxy;
import java.util.function.Function;

/**
 * Hazelcast's tests of its FencedLock, which is a Lock with fences. The Makefile leaves out
 * what does not apply, by the table of ../PEER-SUITE.md.
 */
public class HazelcastLockTest extends AbstractFencedLockBasicTest {
    private static TestServer server;
    private RedisLockClient locks;

    @BeforeClass
    public static void startServer() {
        server = TestServer.start();
    }

    @AfterClass
    public static void stopServer() {
        server.close();
    }

    @After
    public void disconnect() {
        locks.close();
        server.ask("FLUSHALL");
    }

    @Override
    protected TestHazelcastInstanceFactory createTestFactory() {
        return new TestHazelcastInstanceFactory(1);
    }

    @Override
    protected String getProxyName() {
        return "lock";
    }

    @Override
    protected HazelcastInstance[] createInstances() {
        locks = RedisLockClient.connect(server.url());
        CPSubsystem subsystem =
                proxy(CPSubsystem.class, "getLock", name -> ShimLock.of(locks.lock((String) name)));
        return new HazelcastInstance[] {
            proxy(HazelcastInstance.class, "getCPSubsystem", none -> subsystem)
        };
    }

    @Override
    protected HazelcastInstance getPrimaryInstance() {
        return instances[0];
    }

    private static <T> T proxy(Class<T> type, String method, Function<Object, Object> answer) {
        return type.cast(Proxy.newProxyInstance(
                type.getClassLoader(), new Class<?>[] {type}, (self, called, arguments) -> {
                    if (!called.getName().equals(method)) {
                        throw new UnsupportedOperationException(called.toString());
                    }
                    return answer.apply(arguments == null ? null : arguments[0]);
                }));
    }
}
