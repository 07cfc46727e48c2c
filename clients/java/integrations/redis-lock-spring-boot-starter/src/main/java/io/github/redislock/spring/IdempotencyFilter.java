package io.github.redislock.spring;

import io.github.redislock.Once;
import io.github.redislock.RedisLockClient;

import jakarta.servlet.*;
import jakarta.servlet.http.*;

import org.springframework.http.HttpHeaders;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.ContentCachingResponseWrapper;

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeoutException;

/**
 * Answers a POST or PATCH with a header {@code Idempotency-Key} once, and its repetitions by the
 * answer that is kept, with the header {@code Idempotency-Replayed: true}.
 *
 * <p>While the first one is being answered the others get 409, or wait ({@link #setPatience}).
 * Another request with the same key gets 422: other in method, path, query or body. An answer of
 * 500 or above is not kept, nor that of an application that throws: the next request runs. If the
 * process dies after a side effect and before the answer is kept, the next request runs, too.
 *
 * <p>Bodies of requests and answers are held in memory. A handler must answer in the thread of the
 * request, not later. The headers that are kept are those that describe the body.
 */
public class IdempotencyFilter extends OncePerRequestFilter {
    private static final String HEADER = "Idempotency-Key";

    /** Others, as Set-Cookie, only the first one gets. */
    private static final List<String> KEPT = List.of(
            HttpHeaders.CONTENT_TYPE,
            HttpHeaders.CONTENT_ENCODING,
            HttpHeaders.CONTENT_LANGUAGE,
            HttpHeaders.ETAG,
            HttpHeaders.LAST_MODIFIED,
            HttpHeaders.LINK,
            HttpHeaders.LOCATION);

    private final RedisLockClient locks;
    private Once<byte[]> how = Once.bytes()
            .withKeep(Duration.ofDays(1))
            .withEarly(Duration.ZERO)
            .withPatience(Duration.ZERO);
    private int limit = 1 << 20;

    /**
     * Makes one.
     *
     * @param locks whose server keeps the answers
     */
    public IdempotencyFilter(RedisLockClient locks) {
        this.locks = locks;
    }

    /**
     * Sets how long an answer is kept.
     *
     * @param keep a day by default
     */
    public void setKeep(Duration keep) {
        how = how.withKeep(keep);
    }

    /**
     * Sets how long a repetition waits for the first one.
     *
     * @param patience none by default
     */
    public void setPatience(Duration patience) {
        how = how.withPatience(patience);
    }

    /**
     * Sets how long a request's body may be. A longer one is answered with 413.
     *
     * @param bytes a mebibyte by default
     */
    public void setLimit(int bytes) {
        this.limit = bytes;
    }

    /**
     * Tells one caller from another: the keys of different ones are different.
     *
     * @param request the request
     * @return the headers Authorization and Cookie
     */
    protected String caller(HttpServletRequest request) {
        return request.getHeader(HttpHeaders.AUTHORIZATION)
                + "\n"
                + request.getHeader(HttpHeaders.COOKIE);
    }

    @Override
    protected boolean shouldNotFilter(HttpServletRequest request) {
        return !Set.of("POST", "PATCH").contains(request.getMethod())
                || request.getHeader(HEADER) == null;
    }

    @Override
    protected void doFilterInternal(
            HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws ServletException, IOException {
        List<Object> words = new ArrayList<>(Arrays.asList(
                request.getMethod(), request.getRequestURI(), request.getQueryString()));
        String type = String.valueOf(request.getContentType()).toLowerCase(Locale.ROOT);
        boolean multipart = type.startsWith("multipart/");
        if (multipart) {
            addParts(request, words);
        } else if (type.startsWith("application/x-www-form")) { // Others may have a wrong query.
            request.getParameterMap().forEach((name, values) ->
                    Collections.addAll(words, name, Arrays.toString(values)));
        }
        byte[] body = request.getInputStream().readNBytes(limit + 1);
        if (body.length > limit) {
            problem(response, 413, "The body is too long.");
            return;
        }
        // Behind the last part the container has left what had not come yet.
        words.add(multipart ? "" : body);
        byte[] mark = digest(words.toArray());
        // What a client has chosen is no part of the name: its braces would say the slot.
        byte[] key = digest(caller(request), request.getHeader(HEADER));
        ContentCachingResponseWrapper first = new ContentCachingResponseWrapper(response);
        boolean[] answered = {false};
        try {
            byte[] stored = locks.once("idempotency:" + HexFormat.of().formatHex(key), how, () -> {
                chain.doFilter(new Repeatable(request, body), first);
                answered[0] = true;
                if (first.getStatus() >= 500) {
                    throw new ServletException("the next request with this key runs");
                }
                return packed(mark, first);
            });
            if (!answered[0]) {
                replay(stored, mark, response);
            }
        } catch (TimeoutException inProgress) {
            problem(response, 409, "A request with this Idempotency-Key is being answered.");
        } catch (ServletException | IOException | RuntimeException failed) {
            if (!answered[0]) {
                throw failed;
            }
            if (first.getStatus() < 500) {
                logger.warn("An answer is not kept for its Idempotency-Key", failed);
            }
        } catch (Exception interrupted) {
            Thread.currentThread().interrupt();
            throw new ServletException(interrupted);
        }
        if (answered[0]) {
            first.copyBodyToResponse();
        }
    }

    /** What the container parses, and then leaves no body of. */
    private static void addParts(HttpServletRequest request, List<Object> words)
            throws ServletException, IOException {
        for (Part part : request.getParts()) {
            byte[] content = part.getInputStream().readAllBytes();
            Collections.addAll(words, part.getName(), part.getSubmittedFileName(), content);
        }
    }

    private static byte[] packed(byte[] mark, ContentCachingResponseWrapper answer)
            throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.write(mark);
        out.writeShort(answer.getStatus());
        for (String name : KEPT) {
            String value = name.equals(HttpHeaders.CONTENT_TYPE)
                    ? answer.getContentType()
                    : String.join(", ", answer.getHeaders(name));
            out.writeUTF(value == null ? "" : value);
        }
        out.write(answer.getContentAsByteArray());
        return bytes.toByteArray();
    }

    private static void replay(byte[] stored, byte[] mark, HttpServletResponse response)
            throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(stored));
        if (!Arrays.equals(in.readNBytes(mark.length), mark)) {
            problem(response, 422, "This Idempotency-Key was used with another request.");
            return;
        }
        int status = in.readUnsignedShort();
        response.setHeader("Idempotency-Replayed", "true");
        for (String name : KEPT) {
            String value = in.readUTF();
            if (!value.isEmpty()) {
                response.setHeader(name, value);
            }
        }
        byte[] body = in.readAllBytes();
        if (status >= 400 && body.length == 0) { // The container has made its page.
            response.sendError(status);
            return;
        }
        response.setStatus(status);
        response.getOutputStream().write(body);
    }

    private static void problem(HttpServletResponse response, int status, String title)
            throws IOException {
        response.setStatus(status);
        response.setContentType("application/problem+json");
        response.getOutputStream()
                .print("{\"status\": " + status + ", \"title\": \"" + title + "\"}");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Each word counts with its length; what is no bytes counts as text. */
    private static byte[] digest(Object... words) {
        try {
            MessageDigest sum = MessageDigest.getInstance("SHA-256");
            for (Object word : words) {
                byte[] raw = word instanceof byte[] given ? given : bytes(String.valueOf(word));
                sum.update(bytes(raw.length + ":"));
                sum.update(raw);
            }
            return sum.digest();
        } catch (NoSuchAlgorithmException never) {
            throw new AssertionError(never);
        }
    }

    /** A request whose body was read. It is answered in its thread. */
    private static final class Repeatable extends HttpServletRequestWrapper {
        private final ServletInputStream body;

        Repeatable(HttpServletRequest request, byte[] body) {
            super(request);
            this.body = stream(new ByteArrayInputStream(body));
        }

        @Override
        public ServletInputStream getInputStream() {
            return body;
        }

        @Override
        public BufferedReader getReader() throws IOException {
            String given = getCharacterEncoding();
            return new BufferedReader(
                    new InputStreamReader(body, given == null ? "ISO-8859-1" : given));
        }

        @Override
        public boolean isAsyncSupported() {
            return false;
        }
    }

    private static ServletInputStream stream(ByteArrayInputStream bytes) {
        return new ServletInputStream() {
            @Override
            public int read() {
                return bytes.read();
            }

            @Override
            public boolean isFinished() {
                return bytes.available() == 0;
            }

            @Override
            public boolean isReady() {
                return true;
            }

            @Override
            public void setReadListener(ReadListener listener) {
                throw new IllegalStateException("the request is not asynchronous");
            }
        };
    }
}
