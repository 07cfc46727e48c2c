package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

import java.util.concurrent.atomic.AtomicInteger;

/** Spring Integration's leader initiator in two applications. */
class LeaderTest extends ServerTest {
    private static final String KEY = RedisLockRegistry.DEFAULT_PREFIX + "leader";

    /** The initiator locks again at each heartbeat, and must not get a lock that it has lost. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void aLeaderThatLosesItsLockIsRevoked(String driver) {
        leading(driver).run(context -> {
            Candidate mine = context.getBean(Candidate.class);
            Eventually.isTrue("it leads", mine::leads);
            server.ask("DEL", KEY);
            Eventually.isTrue("it is revoked", () -> mine.revoked.get() == 1);
            Eventually.isTrue("it leads again", mine::leads);
            assertThat(mine.granted.get()).isEqualTo(2);
        });
    }

    private static ApplicationContextRunner leading(String driver) {
        return application(driver).withUserConfiguration(Application.class);
    }

    static class Application {
        @Bean
        Candidate candidate() {
            return new Candidate();
        }

        @Bean
        LockRegistryLeaderInitiator initiator(RedisLockRegistry registry, Candidate candidate) {
            LockRegistryLeaderInitiator initiator =
                    new LockRegistryLeaderInitiator(registry, candidate);
            initiator.setHeartBeatMillis(200);
            initiator.setBusyWaitMillis(20);
            return initiator;
        }
    }

    static final class Candidate extends DefaultCandidate {
        private final AtomicInteger granted = new AtomicInteger();
        private final AtomicInteger revoked = new AtomicInteger();

        Candidate() {
            super("candidate", "leader");
        }

        @Override
        public void onGranted(Context context) {
            granted.incrementAndGet();
        }

        @Override
        public void onRevoked(Context context) {
            revoked.incrementAndGet();
        }

        private boolean leads() {
            return granted.get() > revoked.get();
        }
    }
}
