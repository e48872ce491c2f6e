"""A certificate authority of our own, and certificates of brokers and clients, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate,
            "-days", "2", "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def expired(self, name: str, subject: str) -> Path:
        """Likewise, with a certificate that was valid until 2021."""
        key, request, certificate, settings = (
            self._folder / f"{name}.{kind}" for kind in ("key", "csr", "crt", "cnf")
        )
        (self._folder / "index.txt").touch()
        settings.write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={self._folder}/index.txt\nrand_serial=yes\n"
            f"new_certs_dir={self._folder}\ncertificate={self.certificate}\n"
            f"private_key={self._key}\ndefault_md=sha256\npolicy=any\nx509_extensions=names\n"
            "[any]\ncommonName=optional\norganizationName=optional\n"
            "organizationalUnitName=optional\n"
            "[names]\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
        )
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject)
        _openssl(
            "ca", "-batch", "-notext", "-config", settings, "-in", request, "-out", certificate,
            "-startdate", "20200101000000Z", "-enddate", "20210101000000Z",
        )  # fmt: skip
        store = self._folder / f"{name}.pem"
        store.write_text(key.read_text() + certificate.read_text())
        return store

    def issued(self, name: str, subject: str) -> Path:
        """One file with a key and a certificate for it: what Kafka calls a key store of PEM."""
        key, request, certificate, extensions = (
            self._folder / f"{name}.{kind}" for kind in ("key", "csr", "crt", "ext")
        )
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        store = self._folder / f"{name}.pem"
        store.write_text(key.read_text() + certificate.read_text())
        return store


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
