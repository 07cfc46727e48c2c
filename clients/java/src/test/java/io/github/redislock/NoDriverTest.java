package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;

/** A class path that has this client and no driver. */
class NoDriverTest {
    @Test
    void theErrorNamesTheArtifactsToAdd() throws Exception {
        URL classes =
                RedisLockClient.class.getProtectionDomain().getCodeSource().getLocation();
        try (URLClassLoader alone =
                new URLClassLoader(new URL[] {classes}, ClassLoader.getPlatformClassLoader())) {
            Method connect = alone.loadClass(RedisLockClient.class.getName())
                    .getMethod("connect", String.class);
            Throwable refused = assertThrows(
                            InvocationTargetException.class,
                            () -> connect.invoke(null, "redis://127.0.0.1:1"))
                    .getCause();
            assertInstanceOf(IllegalStateException.class, refused);
            for (String artifact :
                    new String[] {"redis.clients:jedis", "io.lettuce:lettuce-core"}) {
                assertTrue(refused.getMessage().contains(artifact), refused.getMessage());
            }
        }
    }
}
