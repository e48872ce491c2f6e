"""Why brokers cannot be reached: for the log, and for errors.

librdkafka writes a line for every connection that it cannot make or loses, for each broker and each
attempt: dozens in a few seconds when a cluster is unreachable. Of these the first one is logged,
and then one every ten seconds, with the number of those in between. All other lines are passed on.

What the lines say is kept, so that the error of a record that was not delivered can name the
addresses that were tried, why each of them failed, and what to do. librdkafka has the same words
for several causes: where that is so, one connection of our own tells them apart.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lossless.errors import BadInput

SUMMARY_EVERY_S = 10.0
RECENT_S = 60.0  # failures before that do not explain what happens now
NAMED_MAX = 3  # addresses in an error
PROBE_S = 2.0
LOGIN_S = 4.0  # of refused logins: users of a broker that starts may not be loaded yet

_CONNECTION_FAILED = "FAIL"  # librdkafka's name for such lines
# [thrd:…]: host:port/id: what happened (after 5ms in state CONNECT)
_LINE = re.compile(
    r"(?:\[thrd:.*?\]: )?(?:\w+://)?(?P<address>\S+?)(?:/\S*)?: (?P<reason>.*)", re.S
)
_STATE = re.compile(r" ?\(after \d+ms in state (?P<state>\w+)[^)]*\)")
_CONNECT_TO = re.compile(r"Connect to \S+ failed: ")


_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
)
# What OpenSSL calls them: X509_V_ERR_…
_EXPIRED = 10
_NOT_YET_VALID = 9
_WRONG_NAME = frozenset({62, 64})

# A part of librdkafka's line, and what to do about it.
_HINTS = {
    "Connection refused": "no broker listens there: start it, or correct bootstrap.servers",
    "Failed to resolve": "correct the host name in bootstrap.servers, or, if that one is right, in "
    "advertised.listeners of the brokers",
    "certificate required": "the broker demands a certificate of the client: give it one by "
    "ssl.keystore.location, or by ssl.certificate.location and ssl.key.location",
    "SASL authentication error": "check the user name, the password and sasl.mechanism",
    "Authentication failed": "check the user name, the password and sasl.mechanism",
    "Unsupported SASL mechanism": "set sasl.mechanism to one that the broker supports",
}
_LOGIN_REFUSED = (
    "SASL authentication error",
    "Authentication failed",
    "Unsupported SASL mechanism",
)
# What librdkafka supposes whenever a connection is closed during the handshake.
_GUESSED_PLAIN = ": connecting to a PLAINTEXT broker listener?"
_PLAIN_HINT = (
    "the listener does not speak TLS: use its TLS port, or security.protocol = PLAINTEXT (with a "
    "login: SASL_PLAINTEXT)"
)
# ApiVersions, version 0, which every Kafka answers before a login; without a client id.
_CORRELATION_ID = 0x4C6F7373
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_ANSWER = struct.Struct(">ii")  # its length and the correlation id
_ANSWER_BYTES_MAX = 1 << 20


class Log(Protocol):
    """A logger, as far as librdkafka's lines need one."""

    def log(self, level: int, message: str, *arguments: object) -> object: ...


class Explanation(NamedTuple):
    what: str
    hint: str | None


class Connections:
    """Given to confluent-kafka as the client's logger. Any thread may call it.

    settings: librdkafka's, for connections of our own.
    """

    def __init__(self, log: Log, settings: Mapping[str, Any] | None = None) -> None:
        self._log = log
        self._settings = settings or {}
        self._causes: dict[tuple[str, str], tuple[str, str | None]] = {}
        self._guard = threading.Lock()
        self._logged_at: float | None = None
        self._unlogged = 0
        self._failed: dict[str, tuple[float, str]] = {}  # when and why, by address
        self._is_made = False
        self._login_refused_at: float | None = None  # since then by every broker that was tried

    def log(self, level: int, message: str, *arguments: object) -> None:
        """A line of librdkafka: facility, name of the client, text."""
        if len(arguments) < 2 or arguments[0] != _CONNECTION_FAILED:
            self._log.log(level, message, *arguments)
            return
        now = time.monotonic()
        with self._guard:
            self._note(str(arguments[-1]), now)
            if self._logged_at is not None and now - self._logged_at < SUMMARY_EVERY_S:
                self._unlogged += 1
                return
            since_s = 0.0 if self._logged_at is None else now - self._logged_at
            unlogged, self._unlogged, self._logged_at = self._unlogged, 0, now
        if not unlogged:
            self._log.log(level, message, *arguments)
        else:
            self._log.log(
                level,
                message + " (and %d more failures of connections in the last %.0f s, not logged)",
                *arguments,
                unlogged,
                since_s,
            )

    def made(self) -> None:
        """A broker has answered."""
        self._is_made = True
        self._login_refused_at = None

    @property
    def is_login_refused(self) -> bool:
        """Whether there never was a connection, and every address that was tried has refused the
        login for some seconds. A login that was accepted before may be so again."""
        since = self._login_refused_at
        return since is not None and time.monotonic() - since >= LOGIN_S

    def explanation(self) -> Explanation | None:
        """Why brokers are unreachable, if connections have failed recently. It may take as long as
        a connection to an address that has not been looked at yet."""
        now = time.monotonic()
        with self._guard:
            recent = {
                address: reason
                for address, (at, reason) in self._failed.items()
                if now - at < RECENT_S
            }
            is_made = self._is_made
        if not recent:
            return None
        causes = {
            address: self._cause(address, reason)
            for address, reason in [*recent.items()][:NAMED_MAX]
        }
        named = [f"{address} ({what})" for address, (what, _) in causes.items()]
        if len(recent) > NAMED_MAX:
            named.append(f"and {len(recent) - NAMED_MAX} more")
        tried = ", ".join(named)
        hint = next((hint for _, hint in causes.values() if hint is not None), None)
        if is_made:
            return Explanation(
                f"connections to brokers were made before, and fail now: {tried}", hint
            )
        return Explanation(f"no connection to a broker was ever made: tried {tried}", hint)

    def _cause(self, address: str, reason: str) -> tuple[str, str | None]:
        """In plain words, and what to do."""
        found = self._causes.get((address, reason))
        if found is None:
            found = self._causes[address, reason] = _cause(address, reason, self._settings)
        return found

    def _note(self, text: str, now: float) -> None:
        line = _LINE.match(text)
        if line is None:
            return
        state = _STATE.search(text)
        if state is not None and state["state"] == "UP":
            self._is_made = True
        reason = _CONNECT_TO.sub("", _STATE.sub("", line["reason"]))
        self._failed.pop(line["address"], None)  # the latest comes last
        self._failed[line["address"]] = (now, reason.split(" (after ")[0].strip())
        # librdkafka logs a failure again only when it changes, or after 30 s.
        reasons = [reason for _, reason in self._failed.values()]
        if self._is_made or not all(map(_is_refused_login, reasons)):
            self._login_refused_at = None
        elif self._login_refused_at is None:
            self._login_refused_at = now


def check_files(settings: Mapping[str, Any]) -> None:
    """librdkafka does not say which file it cannot read."""
    for name in _FILES:
        place = settings.get(name)
        if not isinstance(place, str) or (name == "ssl.ca.location" and place == "probe"):
            continue
        try:
            if not Path(place).is_dir():
                with Path(place).open("rb"):
                    pass
        except OSError as error:
            raise BadInput(
                f"{name} = {place} cannot be read: {error.strerror}",
                hint="correct the path (ssl.truststore.location is called ssl.ca.location here)"
                if name == "ssl.ca.location"
                else "correct the path",
            ) from error


def _cause(address: str, reason: str, settings: Mapping[str, Any]) -> tuple[str, str | None]:
    for part, hint in _HINTS.items():
        if part in reason:
            return reason, hint
    if "certificate verify failed" in reason:
        return _certificate_cause(address, reason, settings)
    if "Disconnected" not in reason and _GUESSED_PLAIN not in reason:
        return reason, None
    if str(settings.get("security.protocol", "")).upper().endswith("SSL"):
        if _speaks_plainly(address):
            return reason, _PLAIN_HINT
        return reason.replace(_GUESSED_PLAIN, ""), None
    if _speaks_tls(address):
        has_login = str(settings.get("security.protocol", "")).upper().startswith("SASL")
        return (
            "the listener there expects TLS, and the client does not use it",
            f"set security.protocol = {'SASL_SSL' if has_login else 'SSL'}, or use another port",
        )
    return reason, None


def _certificate_cause(
    address: str, reason: str, settings: Mapping[str, Any]
) -> tuple[str, str | None]:
    """librdkafka says only that the certificate could not be verified."""
    context = ssl.create_default_context()
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    try:
        if pem:
            context.load_verify_locations(cadata=pem)
        elif location and location != "probe":
            is_folder = Path(location).is_dir()
            context.load_verify_locations(**{"capath" if is_folder else "cafile": location})
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm") != "none"
        _shake_hands(address, context)
    except ssl.SSLCertVerificationError as error:
        host = _host_and_port(address)[0]
        if error.verify_code == _EXPIRED:
            return "the certificate of the broker has expired", "renew it"
        if error.verify_code == _NOT_YET_VALID:
            return "the certificate of the broker is not valid yet", "compare the clocks"
        if error.verify_code in _WRONG_NAME:
            return (
                f"the certificate of the broker is for another name than {host}",
                "connect by a name that it has, or issue it with a subjectAltName for this one",
            )
        return (
            f"the certificate of the broker is of an unknown authority: {error.verify_message}",
            "set ssl.ca.location to the certificate of the authority that issued it",
        )
    except (OSError, ValueError):
        pass
    return reason, None


def _is_refused_login(reason: str) -> bool:
    return any(part in reason for part in _LOGIN_REFUSED)


def _speaks_plainly(address: str) -> bool:
    """Whether the listener answers a request without TLS. One that closes the connection may be
    a TLS listener that is stopping."""
    try:
        with socket.create_connection(_host_and_port(address), PROBE_S) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except (OSError, ValueError):
        return False
    if len(answer) < _ANSWER.size:
        return False
    length, correlation_id = _ANSWER.unpack(answer)
    return bool(correlation_id == _CORRELATION_ID and 0 < length <= _ANSWER_BYTES_MAX)


def _speaks_tls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _shake_hands(address, context)
    except ssl.SSLError as error:
        # An alert is an answer in TLS: the listener wants a client's certificate, for example.
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    host, port = _host_and_port(address)
    with (
        socket.create_connection((host, port), PROBE_S) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
