"""A TCP proxy that cuts a PostgreSQL connection at its COMMIT, on one side of it or the other."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # a simple query, as libpq sends it


class CuttingProxy:
    """Forwards until armed; then the next COMMIT is where the connection breaks, once.

    before   the server never sees the COMMIT
    after    the server has answered it, and the client never hears
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut: Literal["before", "after"] | None = None
        self.fired = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def arm(self, cut: Literal["before", "after"]) -> None:
        self._cut = cut

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            for pump in (self._client_to_server, self._server_to_client):
                thread = threading.Thread(target=pump, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _client_to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._cut and data.endswith(COMMIT):
                    self.fired += 1
                    if self._cut == "before":
                        self._cut = None
                        break
                server.sendall(data)
        self._close(client, server)

    def _server_to_client(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                # The first answer after the COMMIT was forwarded is the answer to it.
                if self._cut == "after" and self.fired:
                    self._cut = None
                    break
                client.sendall(data)
        self._close(client, server)

    def _close(self, *ends: socket.socket) -> None:
        for end in ends:
            # A plain close would wait for the other thread's recv; a shutdown ends it.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
