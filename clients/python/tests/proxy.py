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
        self._sockets: list[socket.socket] = [self._listener]
        self._welcomes = True
        # One at a time, so that what came in a pause goes on in its order.
        self._gate = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        # How many requests a pause has held back.
        self.held = 0
        self._to_lose, self._cuts = b"", True
        self.lost = 0
        self._silent: set[socket.socket] = set()
        self._refused, self._refusal, self._refusals_left = re.compile(b""), b"", 0.0
        self.refusals = 0
        self.delay = 0.0

    def lose_reply_to(self, command: bytes, cuts: bool = True) -> None:
        """Keep the reply to the next command of this name, and cut its connection."""
        self._to_lose, self._cuts = command, cuts

    def pause(self) -> None:
        """Pass no request on any more, and cut nothing: as a server that hangs."""
        self._flowing.clear()

    def resume(self) -> None:
        """Pass on what came in a pause, and all that follows."""
        self._flowing.set()

    def refuse(self) -> None:
        """Cut all connections, and new ones at once. The port stays ours: another socket might get it."""
        self._welcomes = False
        self._shut(self._sockets[1:])

    def welcome(self) -> None:
        """Let new connections in again."""
        self._welcomes = True

    def silence(self) -> None:
        """Pass nothing on any more over the connections that are open, and cut nothing. New ones work."""
        self._silent.update(self._sockets)

    def answer(self, words: bytes, reply: bytes, times: float = math.inf) -> None:
        """Answer the next commands with one of these words by this reply. The server does not get them."""
        self._refused, self._refusal, self._refusals_left = re.compile(rb"\r\n(%s)\r\n" % words), reply, times

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Refuse new connections and cut the old ones."""
        self._flowing.set()
        self._shut(self._sockets)
        for each in self._sockets:
            each.close()

    @staticmethod
    def _shut(sockets: list[socket.socket]) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._welcomes:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                loses = threading.Event()
                for pass_on in (self._requests, self._replies):
                    threading.Thread(target=pass_on, args=(client, server, loses), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, loses: threading.Event) -> None:
        """One command at a time: a client that does not pipeline sends each in one piece."""
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._to_lose and self._to_lose in data:
                    self._to_lose = b""
                    loses.set()
                time.sleep(self.delay)
                with self._gate:
                    self.held += not self._flowing.is_set()
                    self._flowing.wait()
                    if server in self._silent:
                        continue
                    if self._refusals_left and self._refused.search(data):
                        self._refusals_left -= 1
                        self.refusals += 1
                        client.sendall(b"%s\r\n" % self._refusal)
                    else:
                        server.sendall(data)

    def _replies(self, client: socket.socket, server: socket.socket, loses: threading.Event) -> None:
        with client, server, contextlib.suppress(OSError):
            while data := server.recv(65536):
                if loses.is_set():
                    self.lost += 1
                    if self._cuts:
                        break
                    continue
                time.sleep(self.delay)
                if server not in self._silent:
                    client.sendall(data)
            # To close it is not enough while the other thread reads.
            client.shutdown(socket.SHUT_RDWR)
