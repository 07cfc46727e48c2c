package io.github.redislock;

import java.text.MessageFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.*;

/** What the client logs, until this is closed. */
final class Warnings extends Handler implements AutoCloseable {
    private static final Logger LOG = Logger.getLogger("io.github.redislock");
    final List<String> said = new CopyOnWriteArrayList<>();

    Warnings() {
        LOG.addHandler(this);
        LOG.setUseParentHandlers(false);
    }

    @Override
    public void publish(LogRecord line) {
        said.add(MessageFormat.format(line.getMessage(), line.getParameters()));
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
        LOG.removeHandler(this);
        LOG.setUseParentHandlers(true);
    }
}
