package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.RedisLockClient;

import jakarta.servlet.http.*;

import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

import org.junit.jupiter.api.*;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

class IdempotencyFilterTest extends ServerTest {
    @TempDir
    private static Path folder;

    /** Counts what runs, and answers as the path says. */
    @SuppressWarnings("serial") // Nobody writes it anywhere.
    private static final class Payments extends HttpServlet {
        final AtomicInteger ran = new AtomicInteger();
        CountDownLatch began = new CountDownLatch(1);
        volatile CountDownLatch goesOn = new CountDownLatch(0);

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            int number = ran.incrementAndGet();
            began.countDown();
            try {
                goesOn.await();
            } catch (InterruptedException cut) {
                throw new IOException(cut);
            }
            String path = request.getRequestURI();
            if (path.equals("/throws")) {
                throw new IllegalStateException("down");
            }
            if (path.equals("/error")) {
                response.sendError(404, "no such order");
                return;
            }
            response.setStatus(path.equals("/down") ? 503 : 201);
            response.setContentType("text/plain;charset=UTF-8");
            response.setHeader("Location", "/payments/" + number);
            response.addHeader("Set-Cookie", "session=1");
            String body = path.equals("/form")
                    ? request.getParameter("amount")
                    : request.getReader().readLine();
            response.getWriter().print(number + " " + body + (request.isAsyncSupported() ? "!" : ""));
        }
    }

    private final Payments payments = new Payments();
    private final HttpClient http = HttpClient.newHttpClient();
    private Tomcat tomcat;
    private RedisLockClient locks;
    private IdempotencyFilter filter;

    @BeforeEach
    void startTomcat() throws Exception {
        server.ask("FLUSHALL");
        locks = RedisLockClient.connect(server.url());
        filter = new IdempotencyFilter(locks);
        tomcat = new Tomcat();
        tomcat.setBaseDir(folder.toString());
        tomcat.setPort(0);
        Context context = tomcat.addContext("", folder.toString());
        Wrapper wrapper = Tomcat.addServlet(context, "payments", payments);
        wrapper.setAsyncSupported(true);
        wrapper.addMapping("/*");
        FilterDef definition = new FilterDef();
        definition.setFilterName("once");
        definition.setFilter(filter);
        definition.setAsyncSupported("true");
        context.addFilterDef(definition);
        FilterMap all = new FilterMap();
        all.setFilterName("once");
        all.addURLPattern("/*");
        context.addFilterMap(all);
        tomcat.getConnector();
        tomcat.start();
    }

    @AfterEach
    void stopTomcat() throws Exception {
        locks.close();
        tomcat.stop();
        tomcat.destroy();
    }

    private CompletableFuture<HttpResponse<String>> sends(
            String method, String path, String body, String... headers) {
        URI address =
                URI.create("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + path);
        HttpRequest.Builder request = HttpRequest.newBuilder(address)
                .timeout(Duration.ofSeconds(30))
                .method(method, HttpRequest.BodyPublishers.ofString(body));
        if (headers.length > 0) {
            request.headers(headers);
        }
        return http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private HttpResponse<String> posts(String path, String body, String... headers) {
        return sends("POST", path, body, headers).join();
    }

    private static String header(HttpResponse<?> response, String name) {
        return response.headers().firstValue(name).orElse(null);
    }

    @Test
    void aRepetitionGetsTheFirstAnswer() {
        HttpResponse<String> first = posts("/pay", "5 €", "Idempotency-Key", "{a}");
        assertThat(first.statusCode()).isEqualTo(201);
        assertThat(first.body()).startsWith("1 ");
        assertThat(header(first, "Set-Cookie")).isEqualTo("session=1");
        assertThat(header(first, "Idempotency-Replayed")).isNull();
        HttpResponse<String> second = posts("/pay", "5 €", "Idempotency-Key", "{a}");
        assertThat(second.statusCode()).isEqualTo(201);
        assertThat(second.body()).isEqualTo(first.body());
        assertThat(header(second, "Location")).isEqualTo("/payments/1");
        assertThat(header(second, "Content-Type")).isEqualTo(header(first, "Content-Type"));
        assertThat(header(second, "Set-Cookie")).isNull();
        assertThat(header(second, "Idempotency-Replayed")).isEqualTo("true");
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void anotherRequestWithTheKeyIsRefused() {
        posts("/pay?x=1", "5", "Idempotency-Key", "a");
        assertThat(posts("/pay?x=1", "6", "Idempotency-Key", "a").statusCode()).isEqualTo(422);
        assertThat(posts("/pay?x=2", "5", "Idempotency-Key", "a").statusCode()).isEqualTo(422);
        assertThat(posts("/other", "5", "Idempotency-Key", "a").statusCode()).isEqualTo(422);
        assertThat(sends("PATCH", "/pay?x=1", "5", "Idempotency-Key", "a").join().statusCode())
                .isEqualTo(422);
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void aKeyIsOfItsCaller() {
        posts("/pay", "5", "Idempotency-Key", "a", "Authorization", "one");
        assertThat(posts("/pay", "5", "Idempotency-Key", "a", "Authorization", "two").body())
                .startsWith("2 ");
    }

    @Test
    void whatIsBeingAnsweredIsAConflictOrIsWaitedFor() throws Exception {
        payments.goesOn = new CountDownLatch(1);
        var first = sends("POST", "/pay", "5", "Idempotency-Key", "a");
        assertThat(payments.began.await(30, TimeUnit.SECONDS)).isTrue();
        HttpResponse<String> second = posts("/pay", "5", "Idempotency-Key", "a");
        assertThat(second.statusCode()).isEqualTo(409);
        assertThat(header(second, "Content-Type")).startsWith("application/problem+json");
        filter.setPatience(Duration.ofSeconds(25));
        var third = sends("POST", "/pay", "5", "Idempotency-Key", "a");
        payments.goesOn.countDown();
        assertThat(third.join().body()).isEqualTo(first.join().body());
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void aFailureOfTheServerIsNotKept() {
        HttpResponse<String> down = posts("/down", "5", "Idempotency-Key", "a");
        assertThat(down.statusCode()).isEqualTo(503);
        assertThat(down.body()).startsWith("1 ");
        assertThat(posts("/down", "5", "Idempotency-Key", "a").body()).startsWith("2 ");
        assertThat(posts("/throws", "5", "Idempotency-Key", "b").statusCode()).isEqualTo(500);
        assertThat(posts("/throws", "5", "Idempotency-Key", "b").statusCode()).isEqualTo(500);
        assertThat(payments.ran).hasValue(4);
    }

    @Test
    void anErrorOfTheClientIsKept() {
        for (int count = 0; count < 2; count++) {
            HttpResponse<String> unknown = posts("/error", "5", "Idempotency-Key", "a");
            assertThat(unknown.statusCode()).isEqualTo(404);
            assertThat(unknown.body()).contains("404");
        }
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void aFormIsReadByTheContainer() {
        String type = "application/x-www-form-urlencoded";
        String[] headers = {"Idempotency-Key", "a", "Content-Type", type};
        assertThat(posts("/form", "amount=5", headers).body()).isEqualTo("1 5");
        assertThat(posts("/form", "amount=5", headers).body()).isEqualTo("1 5");
        assertThat(posts("/form", "amount=6", headers).statusCode()).isEqualTo(422);
    }

    @Test
    void otherRequestsPassThrough() {
        assertThat(posts("/pay", "5").body()).isEqualTo("1 5!");
        assertThat(sends("PUT", "/pay", "5", "Idempotency-Key", "a").join().body())
                .isEqualTo("2 5!");
        filter.setLimit(4);
        assertThat(posts("/pay", "12345", "Idempotency-Key", "a").statusCode()).isEqualTo(413);
        assertThat(posts("/pay", "1234", "Idempotency-Key", "a").body()).isEqualTo("3 1234");
    }

    /** It was sent, so it must not be sent again as if it had not been. */
    @Test
    void anAnswerThatCannotBeKeptIsSentAllTheSame() {
        server.ask("ACL", "SETUSER", "default", "-set");
        try {
            assertThat(posts("/pay", "5", "Idempotency-Key", "a").statusCode()).isEqualTo(201);
        } finally {
            server.ask("ACL", "SETUSER", "default", "+set");
        }
    }
}
