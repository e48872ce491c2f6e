"""The Java client and aiokafka on secured listeners: by every mechanism, with TLS, and refused."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from certificates import Authority
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as Resource
from secured import PATIENCE_S, USERS, LoneNode, admin_of, login, result

from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.waiting import wait_until
from lossless.jars import jars
from lossless.jars.java import java

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
APP = "User:CN=app,OU=Tests,O=Lossless"
TOOLS = "org.apache.kafka.tools"


# aiokafka


async def _produced_and_consumed(settings: Mapping[str, Any], topic: str) -> bytes:
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await producer.send_and_wait(topic, b"a")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    try:
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        value: bytes = record.value
        return value
    finally:
        await consumer.stop()


def aiokafka_login(servers: str, mechanism: str, password: str = USERS["admin"]) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "admin",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(guarded: InProcessCluster, mechanism: str) -> None:
    settings = aiokafka_login(guarded.bootstrap_servers, mechanism)
    assert asyncio.run(_produced_and_consumed(settings, f"aiokafka-{mechanism}")) == b"a"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_with_a_wrong_password_is_refused(
    guarded: InProcessCluster, mechanism: str
) -> None:
    settings = aiokafka_login(guarded.bootstrap_servers, mechanism, "wrong")
    with pytest.raises(KafkaError):
        asyncio.run(_produced_and_consumed(settings, "never"))


def test_aiokafka_connects_with_tls(encrypted: LoneNode, authority: Authority) -> None:
    settings = {
        **aiokafka_login(encrypted.addresses["OUTSIDE"], "SCRAM-SHA-512", "alice-secret"),
        "sasl_plain_username": "alice",
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(authority.certificate)),
    }
    assert asyncio.run(_produced_and_consumed(settings, "aiokafka-over-tls")) == b"a"


# The Java client, which takes a few seconds to start


def java_tool(name: str, arguments: list[str], settings: Mapping[str, str], **more: Any) -> str:
    flag = "--consumer.config" if "Consumer" in name else "--producer.config"
    file: Path = more.pop("file")
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    ran = subprocess.run(
        [
            str(java()), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars("kafka"))),
            f"{TOOLS}.{name}", *arguments, flag, str(file),
        ],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False, **more,
    )  # fmt: skip
    return ran.stdout + ran.stderr


def java_produced_and_consumed(
    servers: str, topic: str, settings: Mapping[str, str], folder: Path
) -> str:
    where = ["--bootstrap-server", servers, "--topic", topic]
    file = folder / "client.properties"
    told = java_tool("ConsoleProducer", where, settings, file=file, input="a\n")
    reading = ["--from-beginning", "--max-messages", "1", "--timeout-ms", "30000"]
    grouped = {**settings, "group.id": f"java-{topic}"}
    return told + java_tool("consumer.ConsoleConsumer", [*where, *reading], grouped, file=file)


def java_login(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{user}" password="{password}";'
        ),
    }


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(guarded: InProcessCluster, mechanism: str, tmp_path: Path) -> None:
    settings = java_login(mechanism, "admin", USERS["admin"])
    topic = f"java-{mechanism}"
    told = java_produced_and_consumed(guarded.bootstrap_servers, topic, settings, tmp_path)
    assert "a\n" in told.splitlines(keepends=True)


@pytest.mark.full
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_with_a_wrong_password_is_refused(
    guarded: InProcessCluster, mechanism: str, tmp_path: Path
) -> None:
    told = java_tool(
        "ConsoleProducer",
        ["--bootstrap-server", guarded.bootstrap_servers, "--topic", "never"],
        java_login(mechanism, "admin", "wrong"),
        file=tmp_path / "client.properties",
        input="a\n",
    )
    assert "SaslAuthenticationException" in told or "Authentication failed" in told


@pytest.mark.full
def test_java_connects_with_tls_and_a_login(
    encrypted: LoneNode, authority: Authority, tmp_path: Path
) -> None:
    settings = {
        **java_login("SCRAM-SHA-512", "alice", "alice-secret"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }
    address = encrypted.addresses["OUTSIDE"]
    told = java_produced_and_consumed(address, "java-over-tls", settings, tmp_path)
    assert "a\n" in told.splitlines(keepends=True)


@pytest.mark.full
def test_java_shows_its_certificate(
    encrypted: LoneNode, authority: Authority, app_store: Path, tmp_path: Path
) -> None:
    root = {
        **login(encrypted.addresses["OUTSIDE"], "alice", "alice-secret", "SCRAM-SHA-512"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate),
    }
    allowed = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, APP, "*", right, AclPermissionType.ALLOW
        )
        for kind, name, right in (
            (Resource.TOPIC, "java-by-certificate", AclOperation.ALL),
            (Resource.GROUP, "java-java-by-certificate", AclOperation.READ),
        )
    ]
    admin = admin_of(root)
    for made in admin.create_acls(allowed).values():
        made.result(timeout=PATIENCE_S)
    assert wait_until(lambda: len(list(encrypted.image.acls)) == 2, timeout_s=PATIENCE_S)
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(app_store),
    }
    address = encrypted.addresses["SSL"]
    told = java_produced_and_consumed(address, "java-by-certificate", settings, tmp_path)
    assert "a\n" in told.splitlines(keepends=True)
    everything = AclBindingFilter(
        Resource.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    result(admin.delete_acls([everything]))
    assert wait_until(lambda: not list(encrypted.image.acls), timeout_s=PATIENCE_S)
