"""A real PostgreSQL server for the tests: a data folder of its own, a free port, stopped by pid.

`kill` is what a crash of the server is to its clients and its files: every process of it gone at
once, nothing flushed on purpose, recovery at the next start.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

SUPERUSER = "lossless_tests"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


@dataclass(slots=True)
class PostgresServer:
    binaries: Path
    folder: Path  # holds `data`, `log` and the Unix socket
    port: int
    password: str
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def dsn(self, database: str, **changed: Any) -> str:
        """What a client connects with; `changed` replaces parts of it, such as `password`."""
        parts = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": SUPERUSER,
            "password": self.password,
            "dbname": database,
        }
        return make_conninfo("", **{**parts, **changed})

    def create_database(self, **options: str) -> str:
        """A new, empty database; gives its name."""
        name = f"test_{secrets.token_hex(6)}"
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        for option, value in options.items():
            statement += sql.SQL(" {} {}").format(sql.SQL(option.replace("_", " ")), value)
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(statement)
        return name

    def start(self) -> None:
        """Returns when the server takes connections, after recovery if it crashed before."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.binaries / "postgres",
                    *("-D", self.folder / "data", "-k", self.folder, "-p", str(self.port)),
                    *("-c", "listen_addresses=127.0.0.1"),
                    *(
                        part
                        for name, value in self.settings.items()
                        for part in ("-c", f"{name}={value}")
                    ),
                    # Not UTC, so that a timestamp written without its zone shows.
                    *("-c", "timezone=Asia/Tokyo"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_server_user(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    said = (self.folder / "log").read_text(errors="replace")[-2000:]
                    pytest.fail(f"PostgreSQL did not start: {error}\n{said}")
                # The server has no signal for "ready" that needs no polling of its own.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.05)

    def stop(self) -> None:
        """A fast shutdown: clients are disconnected, everything is flushed."""
        if self.process is not None:
            self.process.send_signal(2)
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None

    def limit_files(self, file_bytes_max: int | None) -> None:
        """No file that a connection made from now on writes may be longer; None: any length."""
        assert self.process is not None
        limit = "unlimited" if file_bytes_max is None else str(file_bytes_max)
        # By the server's own user: root is often not allowed to.
        subprocess.run(
            ["prlimit", f"--pid={self.process.pid}", f"--fsize={limit}:"],
            check=True,
            cwd=self.folder,
            **_server_user(),
        )

    def kill(self) -> None:
        """SIGKILL to the postmaster and to every process that it started."""
        if self.process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid)
            # A stopped postmaster starts nothing between the listing and the killing.
            family.suspend()
            members = [family, *family.children(recursive=True)]
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, STOP_TIMEOUT_S)
        self.process.wait(STOP_TIMEOUT_S)
        self.process = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # A crash here is one of processes, not of power: the page cache survives it.
    with running_postgres(fsync="off") as server:
        yield server


@contextlib.contextmanager
def running_postgres(*, wal_segment_mb: int = 16, **settings: str) -> Iterator[PostgresServer]:
    """A server with a data folder of its own, gone with it at the end."""
    binaries = _binaries()
    # Not pytest's own folder: it is closed to other users, and the server may have to be one.
    folder = Path(tempfile.mkdtemp(prefix="lossless-pg-"))
    server = PostgresServer(
        binaries=binaries,
        folder=folder,
        port=_free_port(),
        password=secrets.token_hex(12),
        settings=settings,
    )
    password_file = folder / "password"
    password_file.write_text(server.password)
    if user := _server_user():
        for path in (folder, password_file):
            os.chown(path, user["user"], user["group"])
    try:
        made = subprocess.run(
            [
                binaries / "initdb",
                *("-D", folder / "data", "-U", SUPERUSER, "--pwfile", password_file),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
                f"--wal-segsize={wal_segment_mb}",
            ],
            capture_output=True,
            text=True,
            cwd=folder,
            **user,
        )
        if made.returncode:
            pytest.fail(f"initdb failed: {made.stderr}")
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


def _server_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as another user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return pytest.fail("PostgreSQL refuses to run as root, and no user `postgres` or `nobody` is")


def _binaries() -> Path:
    """The folder with the server's programs, which most packages keep off the PATH."""
    found = [
        *map(Path, glob.glob("/usr/lib/postgresql/*/bin")),
        *map(Path, glob.glob("/usr/pgsql-*/bin")),
        *map(Path, glob.glob("/opt/homebrew/opt/postgresql@*/bin")),
        *map(Path, glob.glob("/usr/local/opt/postgresql@*/bin")),
    ]
    found.sort(key=lambda folder: [int(number) for number in re.findall(r"\d+", str(folder))])
    if initdb := shutil.which("initdb"):
        found.append(Path(initdb).resolve().parent)
    if pg_config := shutil.which("pg_config"):
        asked = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True)
        found.append(Path(asked.stdout.strip()))
    for folder in reversed(found):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return pytest.fail(
        "PostgreSQL's server programs are not installed (initdb, postgres): "
        "apt-get install postgresql, dnf install postgresql-server or brew install postgresql"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
