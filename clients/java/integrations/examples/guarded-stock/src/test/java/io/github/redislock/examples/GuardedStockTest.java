package io.github.redislock.examples;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.examples.GuardedStock.Stock;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

class GuardedStockTest {
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void twoInstancesSellEachItemOnce(String driver) {
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext one = instance(driver, server);
                ConfigurableApplicationContext two = instance(driver, server)) {
            server.ask("SET", "stock:tea", 40);
            List<CompletableFuture<Integer>> sold = Stream.of(one, two, one, two)
                    .map(instance -> CompletableFuture.supplyAsync(
                            () -> buyAll(instance.getBean(Stock.class)),
                            task -> new Thread(task).start()))
                    .toList();
            assertThat(sold.stream().mapToInt(CompletableFuture::join).sum()).isEqualTo(40);
            assertThat(server.ask("GET", "stock:tea")).isEqualTo("0");
        }
    }

    private static int buyAll(Stock stock) {
        int bought = 0;
        while (stock.take("tea")) {
            bought++;
        }
        return bought;
    }

    private static ConfigurableApplicationContext instance(String driver, TestServer server) {
        return new SpringApplicationBuilder(GuardedStock.class)
                .run(
                        "--spring.data.redis.client-type=" + driver,
                        "--spring.data.redis.port=" + server.port(),
                        "--spring.main.banner-mode=off",
                        "--logging.level.root=warn");
    }
}
