package io.github.redislock.examples;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.examples.GuardedStock.Stock;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;

class GuardedStockTest {
    private static final int ITEMS = 40;
    private static final int THREADS = 8;

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void twoInstancesSellEachItemOnce(String driver) throws Exception {
        ExecutorService buyers = Executors.newFixedThreadPool(THREADS);
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext one = instance(driver, server);
                ConfigurableApplicationContext two = instance(driver, server)) {
            server.ask("SET", "stock:tea", Integer.toString(ITEMS));
            List<Future<Integer>> sold = new ArrayList<>();
            for (int buyer = 0; buyer < THREADS; buyer++) {
                Stock stock = (buyer % 2 == 0 ? one : two).getBean(Stock.class);
                sold.add(buyers.submit(() -> buyAll(stock)));
            }
            int total = 0;
            for (Future<Integer> count : sold) {
                total += count.get();
            }
            assertThat(total).isEqualTo(ITEMS);
            assertThat(server.ask("GET", "stock:tea")).isEqualTo("0");
        } finally {
            buyers.shutdownNow();
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
