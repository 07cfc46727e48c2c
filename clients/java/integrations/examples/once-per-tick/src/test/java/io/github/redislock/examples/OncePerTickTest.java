package io.github.redislock.examples;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;

import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

import java.util.List;

class OncePerTickTest {
    @Test
    void twoInstancesRunTheJobOncePerTick() {
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext one = instance("one", server);
                ConfigurableApplicationContext two = instance("two", server)) {
            assertThat(one.isRunning() && two.isRunning()).isTrue();
            // Those before were of one instance only.
            server.ask("DEL", "reports");
            Eventually.isTrue("it has run", () -> reports(server).size() >= 3);
            List<String> ticks = reports(server).stream()
                    .map(report -> report.toString().split(" ")[0])
                    .toList();
            assertThat(ticks).doesNotHaveDuplicates();
            // The lock is the module's, and is kept after the job.
            Eventually.isTrue("it is locked", () -> server.isLocked("job-lock:default:report"));
        }
    }

    private static List<?> reports(TestServer server) {
        return (List<?>) server.ask("LRANGE", "reports", "0", "-1");
    }

    private static ConfigurableApplicationContext instance(String name, TestServer server) {
        return new SpringApplicationBuilder(OncePerTick.class)
                .run(
                        "--instance=" + name,
                        "--spring.data.redis.port=" + server.port(),
                        "--spring.main.banner-mode=off",
                        "--logging.level.root=warn");
    }
}
