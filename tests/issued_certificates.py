"""Certificates of brokers, made by openssl: of a known and of an unknown authority."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Certificates:
    """Two authorities, and what they have issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("known", "unknown"):
            _openssl(
                "req", "-x509", *_NEW_KEY, "-keyout", folder / f"{name}.key",
                "-out", folder / f"{name}.pem", "-days", "2", "-subj", f"/CN={name}",
                "-addext", "basicConstraints=critical,CA:TRUE",
                "-addext", "keyUsage=critical,keyCertSign",
            )  # fmt: skip

    def issued(self, by: str, name: str, days: int) -> Path:
        """A key and a certificate in one file."""
        stem = self.folder / f"{by}-{name.replace(':', '-')}-{days}"
        key, request, extensions, certificate = (
            stem.with_suffix(f".{kind}") for kind in ("key", "csr", "ext", "crt")
        )
        extensions.write_text(f"subjectAltName={name}\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", "/CN=broker")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.folder / f"{by}.pem",
            "-CAkey", self.folder / f"{by}.key", "-CAcreateserial", "-days", str(days),
            "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        both = stem.with_suffix(".both")
        both.write_text(key.read_text() + certificate.read_text())
        return both
