"""A proxy before a server that can lose a reply, cut connections, go silent, delay, and answer by itself."""

import contextlib
import math
import re
import socket
import threading
import time
from typing import Self


class Proxy:
    """Passes bytes on in both directions until it is closed."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lost = 0
        self._to_lose: bytes | None = None
        self._cuts = True
        self._welcomes = True
        self._flowing = threading.Event()
        self._flowing.set()
        self._sockets: list[socket.socket] = [self._listener]
        self._refused: re.Pattern[bytes] | None = None
        self._refusal = b""
        self._silent: set[socket.socket] = set()
        self.refusals = 0
        self.refusals_left = 0.0
        self.delay = 0.0

    def lose_reply_to(self, command: bytes) -> None:
        """Cut the connection instead of passing on the reply to the next command of this name."""
        self._to_lose = command

    def hold_reply_to(self, command: bytes) -> None:
        """Keep the reply to the next command of this name, and cut nothing."""
        self._cuts = False
        self.lose_reply_to(command)

    def pause(self) -> None:
        """Pass no request on any more, and cut nothing: as a server that hangs."""
        self._flowing.clear()

    def resume(self) -> None:
        """Pass on what came in a pause, and all that follows."""
        self._flowing.set()

    def cut(self) -> None:
        """Cut all connections. New ones are welcome."""
        for each in self._sockets[1:]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Cut all connections, and new ones at once. The port stays ours: another socket might get it."""
        self._welcomes = False
        self.cut()

    def welcome(self) -> None:
        """Let new connections in again."""
        self._welcomes = True

    def silence(self) -> None:
        """Pass nothing on any more over the connections that are open, and cut nothing. New ones work."""
        self._silent.update(self._sockets)

    def answer(self, words: bytes, reply: bytes, times: float = math.inf) -> None:
        """Answer the next commands with one of these words by this reply. The server does not get them."""
        self._refused, self._refusal, self.refusals_left = re.compile(rb"\r\n(%s)\r\n" % words), reply, times

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse new connections and cut the old ones."""
        self._flowing.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._welcomes:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """One command at a time: a client that does not pipeline sends each in one piece."""
        with client, server, contextlib.suppress(OSError):
            lose = threading.Event()

            def requests() -> None:
                with contextlib.suppress(OSError):
                    while data := client.recv(65536):
                        if self._to_lose and self._to_lose in data:
                            self._to_lose = None
                            lose.set()
                        self._flowing.wait()
                        time.sleep(self.delay)
                        if server in self._silent:
                            continue
                        if self.refusals_left and self._refused and self._refused.search(data):
                            self.refusals_left -= 1
                            self.refusals += 1
                            client.sendall(b"%s\r\n" % self._refusal)
                            continue
                        server.sendall(data)

            threading.Thread(target=requests, daemon=True).start()
            while data := server.recv(65536):
                if lose.is_set():
                    self.lost += 1
                    if not self._cuts:
                        continue
                    client.shutdown(socket.SHUT_RDWR)
                    return
                time.sleep(self.delay)
                if server not in self._silent:
                    client.sendall(data)
            # To close it is not enough while the other thread reads.
            client.shutdown(socket.SHUT_RDWR)
