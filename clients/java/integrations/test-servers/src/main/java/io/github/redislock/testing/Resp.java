package io.github.redislock.testing;

import java.io.*;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command over one connection, so that the tests depend on no version of a client. */
final class Resp {
    private static final int TIMEOUT_MS = 5_000;

    private Resp() {}

    /** Strings, numbers, null, or lists of them. */
    static Object ask(int port, Object... words) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(TIMEOUT_MS);
            ByteArrayOutputStream request = new ByteArrayOutputStream();
            request.writeBytes(("*" + words.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            for (Object word : words) {
                byte[] bytes = word.toString().getBytes(StandardCharsets.UTF_8);
                request.writeBytes(("$" + bytes.length + "\r\n").getBytes(StandardCharsets.UTF_8));
                request.writeBytes(bytes);
                request.writeBytes(new byte[] {'\r', '\n'});
            }
            request.writeTo(socket.getOutputStream());
            return reply(new BufferedInputStream(socket.getInputStream()));
        }
    }

    private static Object reply(InputStream in) throws IOException {
        String line = line(in);
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

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next; (next = in.read()) != '\n'; line.append((char) next)) {
            if (next < 0) {
                throw new EOFException("the connection ended");
            }
        }
        return line.substring(0, line.length() - 1);
    }

    private static List<Object> list(InputStream in, int count) throws IOException {
        List<Object> list = new ArrayList<>();
        for (int item = 0; item < count; item++) {
            list.add(reply(in));
        }
        return count < 0 ? null : list;
    }

    private static String bulk(InputStream in, int length) throws IOException {
        if (length < 0) {
            return null;
        }
        String text = new String(in.readNBytes(length), StandardCharsets.UTF_8);
        in.skipNBytes(2); // The end of its line.
        return text;
    }
}
