"""A Maven repository on the loopback interface that serves one jar, and can be told how."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.postgresql</groupId>
<artifactId>postgresql</artifactId><version>42.7.4</version></project>"""

SETTINGS = """<ivysettings><settings defaultResolver="mirror"/><resolvers>
<ibiblio name="mirror" m2compatible="true" root="http://127.0.0.1:{port}/" checksums=""/>
</resolvers></ivysettings>"""


class Mirror:
    def __init__(self, jar: bytes) -> None:
        self.jar = jar
        self.jars_served = 0
        self.half_served = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.port = 0

    def settings(self, folder: Path) -> Path:
        file = folder / "ivysettings.xml"
        file.write_text(SETTINGS.format(port=self.port))
        return file


@contextmanager
def serving(jar: bytes) -> Iterator[Mirror]:
    mirror = Mirror(jar)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            if not self.path.endswith((".pom", ".jar")) or "sources" in self.path:
                self.send_error(404)
                return
            content = POM.encode() if self.path.endswith(".pom") else mirror.jar
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not body:
                return
            if self.path.endswith(".jar"):
                mirror.jars_served += 1
                half = len(content) // 2
                self.wfile.write(content[:half])
                mirror.half_served.set()
                mirror.go_on.wait(60)
                content = content[half:]
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Quietly."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield mirror
    finally:
        mirror.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
