package io.github.redislock.testing;

import java.io.*;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** One command over one connection, so that the tests depend on no version of a client. */
final class Resp {
    private static final int TIMEOUT_MS = 5_000;

    private Resp() {}

    /** Strings, numbers, null, or lists of them. */
    static Object ask(int port, String... words) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), TIMEOUT_MS);
            socket.setSoTimeout(TIMEOUT_MS);
            ByteArrayOutputStream request = new ByteArrayOutputStream();
            request.writeBytes(("*" + words.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            for (String word : words) {
                byte[] bytes = word.getBytes(StandardCharsets.UTF_8);
                request.writeBytes(("$" + bytes.length + "\r\n").getBytes(StandardCharsets.UTF_8));
                request.writeBytes(bytes);
                request.writeBytes(new byte[] {'\r', '\n'});
            }
            socket.getOutputStream().write(request.toByteArray());
            return reply(new BufferedInputStream(socket.getInputStream()));
        }
    }

    private static Object reply(InputStream in) throws IOException {
        String line = line(in);
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
                return rest;
            case ':':
                return Long.valueOf(rest);
            case '-':
                throw new IOException(rest);
            case '$':
                return bulk(in, Integer.parseInt(rest));
            case '*':
                int count = Integer.parseInt(rest);
                List<Object> list = new ArrayList<>();
                for (int item = 0; item < count; item++) {
                    list.add(reply(in));
                }
                return count < 0 ? null : list;
            default:
                throw new IOException("an unknown reply: " + line);
        }
    }

    private static String bulk(InputStream in, int length) throws IOException {
        if (length < 0) {
            return null;
        }
        byte[] bytes = in.readNBytes(length);
        in.skipNBytes(2);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        int next = in.read();
        while (next != '\r') {
            if (next < 0) {
                throw new IOException("the connection ended");
            }
            line.write(next);
            next = in.read();
        }
        in.skipNBytes(1);
        return line.toString(StandardCharsets.UTF_8);
    }
}
