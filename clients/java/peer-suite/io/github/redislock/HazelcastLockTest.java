package io.github.redislock;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.cp.CPSubsystem;
import com.hazelcast.cp.internal.datastructures.lock.AbstractFencedLockBasicTest;
import com.hazelcast.cp.lock.FencedLock;
import com.hazelcast.test.TestHazelcastInstanceFactory;

import io.github.redislock.testing.TestServer;

import org.junit.*;

import java.lang.reflect.*;
import java.util.concurrent.TimeUnit;

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
        CPSubsystem subsystem = proxy(CPSubsystem.class, (self, called, words) -> {
            RedisLock lock = locks.lock((String) words[0]);
            return proxy(FencedLock.class, (shim, method, all) -> answer(lock, method, all));
        });
        return new HazelcastInstance[] {
            proxy(HazelcastInstance.class, (self, called, none) -> subsystem)
        };
    }

    @Override
    protected HazelcastInstance getPrimaryInstance() {
        return instances[0];
    }

    private static <T> T proxy(Class<T> type, InvocationHandler answers) {
        return type.cast(Proxy.newProxyInstance(
                type.getClassLoader(), new Class<?>[] {type}, answers));
    }

    /** Other names, and a fence that is 0 where there is none. */
    private static Object answer(RedisLock lock, Method called, Object[] words) throws Throwable {
        return switch (called.getName()) {
            case "lockAndGetFence" -> {
                lock.lock();
                yield lock.fence();
            }
            case "tryLockAndGetFence" ->
                tryLock(lock, words) ? lock.fence() : FencedLock.INVALID_FENCE;
            case "tryLock" -> tryLock(lock, words);
            case "getFence" -> lock.fence();
            case "isLockedByCurrentThread" -> lock.isHeldByCurrentThread();
            // Hazelcast counts for all threads, this lock for the own: another's is known to be
            // held, not how often.
            case "getLockCount" ->
                lock.isHeldByCurrentThread() || !lock.isLocked() ? lock.getHoldCount() : 1;
            default -> {
                try {
                    yield RedisLock.class
                            .getMethod(called.getName(), called.getParameterTypes())
                            .invoke(lock, words);
                } catch (InvocationTargetException failed) {
                    throw failed.getCause();
                }
            }
        };
    }

    private static boolean tryLock(RedisLock lock, Object[] words) {
        try {
            return words == null
                    ? lock.tryLock()
                    : lock.tryLock((Long) words[0], (TimeUnit) words[1]);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted); // Hazelcast's is not interruptible here.
        }
    }
}
