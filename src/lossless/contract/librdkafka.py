"""From the Java client's settings to librdkafka's: one table, so that a contract is written once.

The two clients share most names. What differs is of four kinds: another name, another spelling of
the value, credentials that Java wraps into a JAAS line or a key store, and settings that only a JVM
has. The last kind is dropped (`without_effect` names them). A name that neither client knows passes
through, so that librdkafka itself refuses it. Defaults are left alone: where the contract is
silent, the client decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lossless.contract.jaas import jaas_options
from lossless.errors import BadInput

# Another name for the same thing; the value stays as it is.
_RENAMED: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

# Settings of the Java clients (4.1) that have no counterpart, and lose nothing by being left out.
_JAVA_ONLY = frozenset(
    [
        "bootstrap.controllers",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "security.providers",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
        "value.deserializer",
        "value.serializer",
    ]
)

_SOCKET_TIMEOUT_MS_MAX = 300_000  # librdkafka's own limit

_ASSIGNORS: Mapping[str, str] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PARTITIONERS: Mapping[str, str] = {
    "DefaultPartitioner": "murmur2_random",
    "UniformStickyPartitioner": "random",
    "RoundRobinPartitioner": "random",
}


def librdkafka_settings(java: Mapping[str, str]) -> dict[str, str]:
    """The same client for confluent-kafka. BadInput where librdkafka has no way to do it."""
    settings: dict[str, str] = {}
    for name, value in java.items():
        if "\0" in name or "\0" in value:  # where C ends a text
            raise BadInput(
                f"{name!r} has a NUL in it, at which librdkafka would cut it off",
                hint="remove the character",
            )
        if name in _JAVA_ONLY or name in _READ_TOGETHER:
            continue
        if name == "ssl.endpoint.identification.algorithm":
            settings[name] = value or "none"
        elif not value:  # anywhere else empty means not set, and librdkafka takes no empty values
            continue
        elif name in _TRANSLATED:
            settings.update(_TRANSLATED[name](value))
        else:
            settings[_RENAMED.get(name, name)] = value
    settings.update(_compression(java))
    settings.update(_trust_store(java))
    settings.update(_key_store(java))
    settings.update(_login(java))
    return settings


def without_effect(java: Mapping[str, str]) -> list[str]:
    """Which of these settings `librdkafka_settings` leaves out, in order of their names."""
    return sorted(_JAVA_ONLY & java.keys())


def _offset_reset(value: str) -> dict[str, str]:
    if value.startswith("by_duration"):
        raise BadInput(
            f"auto.offset.reset = {value} is known to the Java client only",
            hint="use earliest, latest or none",
        )
    return {"auto.offset.reset": "error" if value == "none" else value}


def _idle(value: str) -> dict[str, str]:
    return {"connections.max.idle.ms": "0" if value == "-1" else value}


def _patience(value: str) -> dict[str, str]:
    """What Java calls request.timeout.ms, the wait for an answer, is the socket's time-out here."""
    if not value.isdecimal():
        return {"socket.timeout.ms": value}
    return {"socket.timeout.ms": str(min(int(value), _SOCKET_TIMEOUT_MS_MAX))}


def _buffer(name: str) -> Callable[[str], dict[str, str]]:
    def translated(value: str) -> dict[str, str]:
        return {name: "0" if value == "-1" else value}  # both mean: as the system likes

    return translated


def _buffer_memory(value: str) -> dict[str, str]:
    if not value.isdecimal():
        return {"queue.buffering.max.kbytes": value}
    return {"queue.buffering.max.kbytes": str(max(1, int(value) // 1024))}


def _batch_size(value: str) -> dict[str, str]:
    return {"batch.size": "1" if value == "0" else value}  # 0 in Java: no batching


def _assignors(value: str) -> dict[str, str]:
    named = [name.strip() for name in value.split(",") if name.strip()]
    translated = []
    for name in named:
        short = name.rpartition(".")[2]
        if short not in _ASSIGNORS and short not in _ASSIGNORS.values():
            raise BadInput(
                f"partition.assignment.strategy {short} is known to the Java client only",
                hint="use RangeAssignor, RoundRobinAssignor or CooperativeStickyAssignor",
            )
        translated.append(_ASSIGNORS.get(short, short))
    # Java lists both protocols to migrate a group; here one must be chosen, and the first leads.
    cooperative = translated[:1] == ["cooperative-sticky"]
    chosen = [name for name in translated if (name == "cooperative-sticky") == cooperative]
    return {"partition.assignment.strategy": ",".join(chosen)} if chosen else {}


def _partitioner(value: str) -> dict[str, str]:
    short = value.rpartition(".")[2]
    if short not in _PARTITIONERS:
        raise BadInput(
            f"partitioner.class {value} is a Java class, which librdkafka cannot run",
            hint="leave it out and choose the partition when sending",
        )
    return {"partitioner": _PARTITIONERS[short]}


def _ignore_keys(value: str) -> dict[str, str]:
    return {"partitioner": "random"} if value.lower() == "true" else {}


_TRANSLATED: Mapping[str, Callable[[str], dict[str, str]]] = {
    "auto.offset.reset": _offset_reset,
    "batch.size": _batch_size,
    "buffer.memory": _buffer_memory,
    "connections.max.idle.ms": _idle,
    "partition.assignment.strategy": _assignors,
    "partitioner.class": _partitioner,
    "partitioner.ignore.keys": _ignore_keys,
    "receive.buffer.bytes": _buffer("socket.receive.buffer.bytes"),
    "request.timeout.ms": _patience,
    "send.buffer.bytes": _buffer("socket.send.buffer.bytes"),
}

# Several of these make up one thing: a codec, a store, a login.
_READ_TOGETHER = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "sasl.jaas.config",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)


def _compression(java: Mapping[str, str]) -> dict[str, str]:
    """Java keeps a level for each codec, librdkafka one for the codec in use."""
    level = java.get(f"compression.{java.get('compression.type')}.level")
    return {"compression.level": level} if level else {}


def _trust_store(java: Mapping[str, str]) -> dict[str, str]:
    location = java.get("ssl.truststore.location")
    if not location:
        return {}
    kind = java.get("ssl.truststore.type") or "JKS"  # Java's default
    if kind.upper() != "PEM":
        raise BadInput(
            f"ssl.truststore.location: librdkafka cannot read a trust store of type {kind}",
            hint=f"export it once: keytool -list -rfc -keystore {location} > ca.pem; then set "
            'ssl.truststore.location = "ca.pem" and ssl.truststore.type = "PEM", which Java reads '
            "as well",
        )
    return {"ssl.ca.location": location}


def _key_store(java: Mapping[str, str]) -> dict[str, str]:
    location = java.get("ssl.keystore.location")
    if not location:
        return {}
    kind = (java.get("ssl.keystore.type") or "JKS").upper()
    if kind == "PEM":  # one file with the private key and the chain
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PKCS12":
        password = java.get("ssl.keystore.password")
        return {
            "ssl.keystore.location": location,
            **({"ssl.keystore.password": password} if password else {}),
        }
    raise BadInput(
        f"ssl.keystore.location: librdkafka cannot read a key store of type {kind}",
        hint=f"convert it once: keytool -importkeystore -srckeystore {location} -destkeystore "
        'client.p12 -deststoretype PKCS12; then set ssl.keystore.location = "client.p12" and '
        'ssl.keystore.type = "PKCS12", which Java reads as well',
    )


def _login(java: Mapping[str, str]) -> dict[str, str]:
    if not java.get("security.protocol", "").upper().startswith("SASL"):
        return {}
    mechanism = java.get("sasl.mechanism") or "GSSAPI"  # Java's default
    options = jaas_options(java.get("sasl.jaas.config", ""))
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        return _named(options, {"username": "sasl.username", "password": "sasl.password"})
    if mechanism == "GSSAPI":
        return _named(
            options,
            {
                "principal": "sasl.kerberos.principal",
                "keyTab": "sasl.kerberos.keytab",
                "serviceName": "sasl.kerberos.service.name",
            },
        )
    if mechanism == "OAUTHBEARER":
        return _oauth(java, options)
    raise BadInput(
        f"sasl.mechanism = {mechanism} is known to the Java client only",
        hint="use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI, or TLS certificates",
    )


def _oauth(java: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    if not java.get("sasl.oauthbearer.token.endpoint.url"):
        raise BadInput(
            "sasl.mechanism = OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: a login "
            "handler written in Java cannot run here",
            hint="set the address of the token endpoint, with clientId and clientSecret in "
            "sasl.jaas.config",
        )
    extensions = ",".join(
        f"{name.removeprefix('extension_')}={value}"
        for name, value in options.items()
        if name.startswith("extension_")
    )
    return {
        "sasl.oauthbearer.method": "oidc",
        **_named(
            options,
            {
                "clientId": "sasl.oauthbearer.client.id",
                "clientSecret": "sasl.oauthbearer.client.secret",
                "scope": "sasl.oauthbearer.scope",
            },
        ),
        **({"sasl.oauthbearer.extensions": extensions} if extensions else {}),
    }


def _named(options: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {names[option]: value for option, value in options.items() if option in names}
