import io.github.redislock.shedlock.RedisSimpleLock;
import io.github.redislock.spring.RedisRegistryLock;

import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.integration.support.locks.LockRegistry;

import java.time.Duration;
import java.time.Instant;

/** A program of somebody else, for `make dist`: one lock by each of the two artifacts. */
@EnableAutoConfiguration
public class TakeLocks {
    public static void main(String[] arguments) {
        SpringApplication application = new SpringApplication(TakeLocks.class);
        application.setDefaultProperties(java.util.Map.of(
                "spring.main.banner-mode", "off",
                "logging.level.root", "warn"));
        try (var context = application.run(arguments)) {
            var lock = (RedisRegistryLock) context.getBean(LockRegistry.class).obtain("a");
            lock.lock();
            System.out.println("a lock of the registry, fence " + lock.fence());
            lock.unlock();
            RedisSimpleLock once = (RedisSimpleLock) context.getBean(LockProvider.class)
                    .lock(new LockConfiguration(
                            Instant.now(), "a", Duration.ofMinutes(1), Duration.ZERO))
                    .orElseThrow();
            System.out.println("a lock of ShedLock, fence " + once.fence());
            once.unlock();
        }
    }
}
