package io.github.redislock;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Stands before a server. What becomes of a connection is up to the kind of proxy. */
abstract class TestProxy implements AutoCloseable {
    interface Handler {
        void serve(Socket client) throws Exception;
    }

    private final List<Socket> open = new CopyOnWriteArrayList<>();
    private final ServerSocket listener;
    private final int serverPort;

    TestProxy(int serverPort) throws IOException {
        this.serverPort = serverPort;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    }

    /** Has each client served in a thread of its own. To be called when the proxy is ready. */
    final void listen(Handler handler) {
        start(() -> {
            while (true) {
                Socket client = listener.accept();
                start(() -> handler.serve(client));
            }
        });
    }

    /** The server's side of a client's connection. */
    final Socket connect(Socket client) throws IOException {
        Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort);
        open.addAll(List.of(client, server));
        return server;
    }

    final String url() {
        return "redis://127.0.0.1:" + listener.getLocalPort();
    }

    /** Closes the connections, as a lost network would. */
    final void cut() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
    }

    static void start(Other.Action action) {
        Thread thread = new Thread(() -> {
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
    public final void close() throws IOException {
        listener.close();
        cut();
    }
}
