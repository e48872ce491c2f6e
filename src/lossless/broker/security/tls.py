"""TLS from Kafka's settings, and who a certificate says its holder is.

ssl.keystore.type=PEM     ssl.keystore.location: a file with the key and the chain, or
                          ssl.keystore.key and ssl.keystore.certificate.chain: the text itself
ssl.truststore.type=PEM   ssl.truststore.location, or ssl.truststore.certificates
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lossless.core.settings.kinds import InvalidSetting

Get = Callable[[str], str | None]

PEM = "PEM"
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(get: Get) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit_versions(context, get)
    if not _load_key(context, get):
        raise InvalidSetting(
            "a listener with TLS needs a certificate: ssl.keystore.location, or ssl.keystore.key "
            "and ssl.keystore.certificate.chain"
        )
    has_trusted = _load_trusted(context, get)
    said = (get("ssl.client.auth") or "none").lower()
    if said not in _CLIENT_AUTH:
        raise InvalidSetting(f"ssl.client.auth: {said} is not one of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[said]
    if said != "none" and not has_trusted:
        raise InvalidSetting(
            f"ssl.client.auth={said} needs certificates to trust: ssl.truststore.location or "
            "ssl.truststore.certificates"
        )
    return context


def client_context(get: Get) -> ssl.SSLContext:
    """Of a node that connects to another. It shows the certificate that it has as a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, get)
    _load_key(context, get)
    if not _load_trusted(context, get):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    algorithm = get("ssl.endpoint.identification.algorithm")
    context.check_hostname = algorithm is None or algorithm.lower() == "https"
    return context


def _limit_versions(context: ssl.SSLContext, get: Get) -> None:
    said = get("ssl.enabled.protocols") or ",".join(_VERSIONS)
    names = [name.strip() for name in said.split(",") if name.strip()]
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise InvalidSetting(
            f"ssl.enabled.protocols: {said} is not made of {' and '.join(_VERSIONS)}"
        )
    context.minimum_version = min(_VERSIONS[name] for name in names)
    context.maximum_version = max(_VERSIONS[name] for name in names)


def _load_key(context: ssl.SSLContext, get: Get) -> bool:
    location, key, chain = (
        get("ssl.keystore.location"),
        get("ssl.keystore.key"),
        get("ssl.keystore.certificate.chain"),
    )
    if not (location or key or chain):
        return False
    _demand_pem("ssl.keystore", get)
    password = get("ssl.key.password")
    try:
        if location:
            context.load_cert_chain(location, password=_told(password))
        else:
            # OpenSSL reads keys from files only. This one is gone before anybody can look for it.
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:
                Path(file.name).write_text(f"{_pem(key)}\n{_pem(chain)}\n")
                context.load_cert_chain(file.name, password=_told(password))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        place = location or "ssl.keystore.key and ssl.keystore.certificate.chain"
        raise InvalidSetting(f"{place} cannot be used: {error}") from error
    return True


def _told(password: str | None) -> Callable[[], str]:
    """Without one OpenSSL would ask at the terminal, and a broker would wait for ever."""
    return lambda: password or ""


def _load_trusted(context: ssl.SSLContext, get: Get) -> bool:
    location, text = get("ssl.truststore.location"), get("ssl.truststore.certificates")
    if not (location or text):
        return False
    _demand_pem("ssl.truststore", get)
    try:
        trusted = Path(location).read_text() if location else _pem(text)
        context.load_verify_locations(cadata=trusted)
    except (OSError, ValueError) as error:
        place = location or "ssl.truststore.certificates"
        raise InvalidSetting(f"{place} cannot be used: {error}") from error
    return True


def _demand_pem(store: str, get: Get) -> None:
    kind = get(f"{store}.type") or "JKS"  # Kafka's default
    if kind.upper() != PEM:
        raise InvalidSetting(
            f"{store}.type={kind}: the embedded broker reads PEM only; convert the store (keytool "
            f"-importkeystore -deststoretype PKCS12, then openssl pkcs12 -in …) and set "
            f"{store}.type=PEM, which Apache Kafka reads as well"
        )


def _pem(text: str | None) -> str:
    """In one line, as properties may have it, a header and a body are not apart."""
    return re.sub(r"(-----BEGIN [^-]+-----)\s*|\s*(-----END [^-]+-----)", _apart, text or "")


def _apart(match: re.Match[str]) -> str:
    return f"\n{match[1]}\n" if match[1] else f"\n{match[2]}\n"


# Names

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """As RFC 2253 writes it, and Java: what stands last in the certificate comes first."""
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    escaped = re.sub(r"^([# ])", r"\\\1", escaped)
    return re.sub(r" $", r"\\ ", escaped)
