package io.github.redislock.examples;

import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

import java.time.Instant;

/**
 * A job that every instance of an application schedules, and that one of them runs at each tick.
 * Start it twice, and look at the list {@code reports} by {@code redis-cli LRANGE reports 0 -1}.
 */
@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "1m")
public class OncePerTick {
    /** Seconds from one tick to the next. */
    static final int TICK = 2;

    /**
     * Starts an instance.
     *
     * @param arguments as of every Spring Boot application
     */
    public static void main(String[] arguments) {
        SpringApplication.run(OncePerTick.class, arguments);
    }

    /** What is to be done once. */
    @Component
    static class Report {
        private final StringRedisTemplate redis;
        private final String instance;

        Report(StringRedisTemplate redis, @Value("${instance:one}") String instance) {
            this.redis = redis;
            this.instance = instance;
        }

        /** lockAtLeastFor keeps an instance out whose clock is a little behind. */
        @Scheduled(cron = "*/" + TICK + " * * * * *")
        @SchedulerLock(name = "report", lockAtLeastFor = "1500ms")
        void send() {
            long tick = Instant.now().getEpochSecond() / TICK;
            redis.opsForList().rightPush("reports", tick + " " + instance);
        }
    }
}
