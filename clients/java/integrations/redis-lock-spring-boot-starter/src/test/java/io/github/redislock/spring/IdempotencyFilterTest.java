package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.RedisLockClient;

import jakarta.servlet.MultipartConfigElement;
import jakarta.servlet.http.*;

import org.apache.catalina.startup.Tomcat;

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
    private static final String KEY = "Idempotency-Key";

    @TempDir
    private static Path folder;

    /** Counts what runs, and answers as the path says. */
    @SuppressWarnings("serial") // Nobody writes it anywhere.
    private static final class Payments extends HttpServlet {
        final AtomicInteger ran = new AtomicInteger();
        final CountDownLatch began = new CountDownLatch(1);
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
    private final Tomcat tomcat = new Tomcat();
    private RedisLockClient locks;
    private IdempotencyFilter filter;

    @BeforeEach
    void startTomcat() throws Exception {
        server.ask("FLUSHALL");
        locks = RedisLockClient.connect(server.url());
        filter = new IdempotencyFilter(locks);
        tomcat.setBaseDir(folder.toString());
        tomcat.setPort(0);
        tomcat.addContext("", folder.toString())
                .addServletContainerInitializer(
                        (none, context) -> {
                            var servlet = context.addServlet("payments", payments);
                            servlet.setAsyncSupported(true);
                            servlet.setMultipartConfig(new MultipartConfigElement(""));
                            servlet.addMapping("/*");
                            var first = context.addFilter("once", filter);
                            first.setAsyncSupported(true);
                            first.addMappingForUrlPatterns(null, false, "/*");
                        },
                        null);
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
        String address = "http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + path;
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address))
                .headers(headers.length > 0 ? headers : new String[] {"Accept", "*/*"})
                .method(method, HttpRequest.BodyPublishers.ofString(body));
        return http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    /** Of a POST with this key. */
    private HttpResponse<String> answer(String path, String body, String key) {
        return sends("POST", path, body, KEY, key).join();
    }

    private static String header(HttpResponse<?> response, String name) {
        return response.headers().firstValue(name).orElse(null);
    }

    @Test
    void aRepetitionGetsTheFirstAnswer() {
        HttpResponse<String> first = answer("/pay", "5 €", "{a}");
        assertThat(first.statusCode()).isEqualTo(201);
        assertThat(first.body()).startsWith("1 ");
        assertThat(header(first, "Set-Cookie")).isEqualTo("session=1");
        assertThat(header(first, "Idempotency-Replayed")).isNull();
        HttpResponse<String> second = answer("/pay", "5 €", "{a}");
        assertThat(second.statusCode()).isEqualTo(201);
        assertThat(second.body()).isEqualTo(first.body());
        assertThat(header(second, "Location")).isEqualTo("/payments/1");
        assertThat(header(second, "Content-Type")).isEqualTo(header(first, "Content-Type"));
        assertThat(header(second, "Set-Cookie")).isNull();
        assertThat(header(second, "Idempotency-Replayed")).isEqualTo("true");
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void anotherRequestWithTheKeyIsRefusedUnlessAnotherCallerSendsIt() {
        answer("/pay?x=%FF", "5", "a");
        String[][] others = {
            {"POST", "/pay?x=%FF", "6"},
            {"POST", "/pay?x=2", "5"},
            {"POST", "/other", "5"},
            {"PATCH", "/pay?x=%FF", "5"}
        };
        for (String[] each : others) {
            assertThat(sends(each[0], each[1], each[2], KEY, "a").join().statusCode())
                    .isEqualTo(422);
        }
        assertThat(payments.ran).hasValue(1);
        assertThat(sends("POST", "/pay", "5", KEY, "a", "Authorization", "two").join().body())
                .startsWith("2 ");
    }

    @Test
    void whatIsBeingAnsweredIsAConflictOrIsWaitedFor() throws Exception {
        payments.goesOn = new CountDownLatch(1);
        var first = sends("POST", "/pay", "5", KEY, "a");
        assertThat(payments.began.await(30, TimeUnit.SECONDS)).isTrue();
        HttpResponse<String> second = answer("/pay", "5", "a");
        assertThat(second.statusCode()).isEqualTo(409);
        assertThat(header(second, "Content-Type")).startsWith("application/problem+json");
        filter.setPatience(Duration.ofSeconds(50));
        var third = sends("POST", "/pay", "5", KEY, "a");
        payments.goesOn.countDown();
        assertThat(third.join().body()).isEqualTo(first.join().body());
        assertThat(payments.ran).hasValue(1);
    }

    @Test
    void aFailureOfTheServerIsNotKeptAndAnErrorOfTheClientIs() {
        for (int number = 1; number < 3; number++) {
            HttpResponse<String> down = answer("/down", "5", "a");
            assertThat(down.statusCode()).isEqualTo(503);
            assertThat(down.body()).startsWith(number + " ");
        }
        assertThat(answer("/throws", "5", "b").statusCode()).isEqualTo(500);
        assertThat(answer("/throws", "5", "b").statusCode()).isEqualTo(500);
        assertThat(payments.ran).hasValue(4);
        for (int count = 0; count < 2; count++) {
            HttpResponse<String> unknown = answer("/error", "5", "c");
            assertThat(unknown.statusCode()).isEqualTo(404);
            assertThat(unknown.body()).contains("404");
        }
        assertThat(payments.ran).hasValue(5);
    }

    @Test
    void aFormIsReadByTheContainer() {
        String[] headers = {KEY, "a", "Content-Type", "application/x-www-form-urlencoded"};
        for (int count = 0; count < 2; count++) {
            assertThat(sends("POST", "/form", "amount=5", headers).join().body()).isEqualTo("1 5");
        }
        assertThat(sends("POST", "/form", "amount=6", headers).join().statusCode()).isEqualTo(422);
        String part = "--x\r\nContent-Disposition: form-data; name=amount\r\n\r\n5\r\n--x--";
        String[] several = {KEY, "b", "Content-Type", "multipart/form-data; boundary=x"};
        for (String rest : new String[] {"", " ".repeat(9_000)}) { // The container may not have it.
            assertThat(sends("POST", "/form", part + rest, several).join().body()).isEqualTo("2 5");
        }
    }

    @Test
    void otherRequestsPassThrough() {
        assertThat(sends("POST", "/pay", "5").join().body()).isEqualTo("1 5!");
        assertThat(sends("PUT", "/pay", "5", KEY, "a").join().body()).isEqualTo("2 5!");
        filter.setLimit(4);
        assertThat(answer("/pay", "12345", "a").statusCode()).isEqualTo(413);
        assertThat(answer("/pay", "1234", "a").body()).isEqualTo("3 1234");
    }

    /** It was sent, so it must not be sent again as if it had not been. */
    @Test
    void anAnswerThatCannotBeKeptIsSentAllTheSame() {
        server.ask("ACL", "SETUSER", "default", "-set");
        try {
            assertThat(answer("/pay", "5", "a").statusCode()).isEqualTo(201);
        } finally {
            server.ask("ACL", "SETUSER", "default", "+set");
        }
    }
}
