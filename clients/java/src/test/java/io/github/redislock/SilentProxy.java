package io.github.redislock;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;

/**
 * Stands before a server and says nothing more on the connection on which the first fence would
 * have come, but leaves it open.
 */
final class SilentProxy extends TestProxy {
    /** The only integer of the protocol that is as long. */
    private static final Pattern FENCE = Pattern.compile("(?m)^:\\d{16}");

    private final AtomicBoolean swallowed = new AtomicBoolean();

    SilentProxy(int serverPort) throws IOException {
        super(serverPort);
        listen(client -> {
            Socket server = connect(client);
            start(() -> carry(client, server, false));
            carry(server, client, true);
        });
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
                silent |= replies
                        && FENCE.matcher(text).find()
                        && swallowed.compareAndSet(false, true);
                if (!silent) {
                    to.getOutputStream().write(bytes, 0, count);
                }
            }
        }
    }
}
