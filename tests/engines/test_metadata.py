"""Why the metadata of a cluster cannot be read."""

from __future__ import annotations

import re
import socketserver
import threading

import pytest

from lossless.engines.metadata import read_metadata
from lossless.errors import Unavailable


class Closes(socketserver.BaseRequestHandler):
    """Closes a connection as a listener does that demands a login before it answers."""

    def handle(self) -> None:
        self.request.recv(1)


def test_a_listener_that_closes_connections_is_named_with_what_it_may_demand() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Closes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        try:
            with pytest.raises(Unavailable, match=re.escape(address)) as failed:
                read_metadata({"bootstrap.servers": address})
        finally:
            server.shutdown()
            thread.join()
    assert "brokers are down" not in str(failed.value)
    assert "do security.protocol and the credentials fit the listener?" in str(failed.value)
