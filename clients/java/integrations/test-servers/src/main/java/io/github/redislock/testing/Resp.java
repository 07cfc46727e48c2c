package io.github.redislock.testing;

import java.io.*;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command over one connection, so that the tests depend on no version of a client. */
final class Resp {
    private static final int TIMEOUT_MS = 5_000;

    /** A character for each byte, as lengths count bytes. */
    private static final Charset BYTES = StandardCharsets.ISO_8859_1;

    private Resp() {}

    /** Strings, numbers, null, or lists of them. */
    static Object ask(int port, String... words) throws IOException {
        StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) {
            String bytes = new String(word.getBytes(StandardCharsets.UTF_8), BYTES);
            request.append("$" + bytes.length() + "\r\n" + bytes + "\r\n");
        }
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), TIMEOUT_MS);
            socket.setSoTimeout(TIMEOUT_MS);
            socket.getOutputStream().write(request.toString().getBytes(BYTES));
            return reply(new BufferedReader(new InputStreamReader(socket.getInputStream(), BYTES)));
        }
    }

    private static Object reply(BufferedReader in) throws IOException {
        String line = in.readLine();
        if (line == null) {
            throw new IOException("the connection ended");
        }
        String rest = line.substring(1);
        return switch (line.charAt(0)) {
            case '+' -> rest;
            case ':' -> Long.valueOf(rest);
            case '-' -> throw new IOException(rest);
            case '$' -> bulk(in, Integer.parseInt(rest));
            case '*' -> list(in, Integer.parseInt(rest));
            default -> throw new IOException("an unknown reply: " + line);
        };
    }

    private static List<Object> list(BufferedReader in, int count) throws IOException {
        List<Object> list = new ArrayList<>();
        for (int item = 0; item < count; item++) {
            list.add(reply(in));
        }
        return count < 0 ? null : list;
    }

    private static String bulk(BufferedReader in, int length) throws IOException {
        if (length < 0) {
            return null;
        }
        StringBuilder bytes = new StringBuilder();
        while (bytes.length() < length + 2) { // With the end of its line.
            int next = in.read();
            if (next < 0) {
                throw new IOException("the connection ended");
            }
            bytes.append((char) next);
        }
        String text = new String(bytes.toString().getBytes(BYTES), StandardCharsets.UTF_8);
        return text.substring(0, text.length() - 2);
    }
}
