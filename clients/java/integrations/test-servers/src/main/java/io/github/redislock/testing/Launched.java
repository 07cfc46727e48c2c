package io.github.redislock.testing;

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** What one call of clients/testing/servers.py has started. It ends with its standard input. */
public final class Launched implements AutoCloseable {
    private final Process launcher;

    /** The port of each server, and its process. */
    public final List<int[]> servers = new ArrayList<>();

    /**
     * Starts them.
     *
     * @param words of its command line
     */
    public Launched(List<String> words) {
        try {
            List<String> command = new ArrayList<>(List.of("python3", script().toString()));
            command.addAll(words);
            launcher = new ProcessBuilder(command)
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            BufferedReader said = launcher.inputReader(StandardCharsets.US_ASCII);
            String line = said.readLine();
            if (line == null) {
                throw new IllegalStateException("no server started: " + words);
            }
            for (String one : line.split(" ")) {
                String[] parts = one.split("/");
                servers.add(new int[] {Integer.parseInt(parts[0]), Integer.parseInt(parts[1])});
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private static Path script() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("clients/testing/servers.py"))) {
            folder = folder.getParent();
        }
        return folder.resolve("clients/testing/servers.py");
    }

    @Override
    public void close() {
        try {
            launcher.getOutputStream().close();
            launcher.waitFor();
        } catch (IOException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }
}
