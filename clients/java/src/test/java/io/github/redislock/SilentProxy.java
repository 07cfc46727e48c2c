package io.github.redislock;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;

/**
 * Stands before a server and says nothing more on the connection on which the first fence would
 * have come, but leaves it open.
 */
final class SilentProxy implements AutoCloseable {
    /** The only integer of the protocol that is as long. */
    private static final Pattern FENCE = Pattern.compile("(?m)^:\\d{16}");

    private final AtomicBoolean swallowed = new AtomicBoolean();
    private final List<Socket> open = new CopyOnWriteArrayList<>();
    private final ServerSocket listener;

    SilentProxy(int serverPort) throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(
                () -> {
                    while (true) {
                        Socket client = listener.accept();
                        Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort);
                        open.addAll(List.of(client, server));
                        start(() -> carry(client, server, false));
                        start(() -> carry(server, client, true));
                    }
                });
    }

    String url() {
        return "redis://127.0.0.1:" + listener.getLocalPort();
    }

    boolean hasSwallowed() {
        return swallowed.get();
    }

    private void carry(Socket from, Socket to, boolean replies) throws IOException {
        byte[] bytes = new byte[16_384];
        boolean silent = false;
        try (from;
                to) {
            for (int count; (count = from.getInputStream().read(bytes)) > 0; ) {
                String text = new String(bytes, 0, count, StandardCharsets.ISO_8859_1);
                silent |=
                        replies
                                && FENCE.matcher(text).find()
                                && swallowed.compareAndSet(false, true);
                if (!silent) {
                    to.getOutputStream().write(bytes, 0, count);
                }
            }
        }
    }

    private static void start(Other.Action action) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                action.run();
                            } catch (Exception closed) {
                                // That is its end.
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : open) {
            socket.close();
        }
    }
}
