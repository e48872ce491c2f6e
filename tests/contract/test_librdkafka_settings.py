"""The translation from the Java clients' settings, tried on the librdkafka that is installed."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lossless.contract import librdkafka_settings
from lossless.errors import BadInput

# An address where nobody listens; and no log lines about it.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def java_clients() -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.read_string((Path(__file__).parent / "java_clients_4_1.ini").read_text())
    return {name: dict(parser[name]) for name in parser.sections()}


JAVA_CLIENTS = java_clients()
JAVA_NAMES = sorted({name for settings in JAVA_CLIENTS.values() for name in settings})


def start_consumer(settings: dict[str, str]) -> None:
    Consumer({"group.id": "g", **settings, **NOWHERE}).close()


def test_a_consumer_starts_with_every_default_of_the_java_consumer() -> None:
    start_consumer(librdkafka_settings(JAVA_CLIENTS["consumer"]))


def test_a_producer_starts_with_every_default_of_the_java_producer() -> None:
    Producer({**librdkafka_settings(JAVA_CLIENTS["producer"]), **NOWHERE})


def test_an_admin_client_starts_with_every_default_of_the_java_one() -> None:
    AdminClient({**librdkafka_settings(JAVA_CLIENTS["admin"]), **NOWHERE})


def test_no_java_setting_comes_out_under_a_name_that_librdkafka_does_not_know() -> None:
    unknown = []
    for name in JAVA_NAMES:
        try:
            translated = librdkafka_settings({name: "1"})
        except BadInput:
            continue  # refused on purpose; the cases are below
        for setting in translated:
            try:
                Producer({setting: "not a value", "log_level": "0"})
            except KafkaException as error:
                message = error.args[0].str()
                if "No such configuration" in message or "Java" in message:
                    unknown.append((name, setting))
    assert unknown == []


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        ({"auto.offset.reset": "earliest"}, {"auto.offset.reset": "earliest"}),
        ({"isolation.level": "read_committed"}, {"isolation.level": "read_committed"}),
        ({"max.poll.records": "500", "value.deserializer": "a.B"}, {}),
        ({"fetch.max.wait.ms": "100"}, {"fetch.wait.max.ms": "100"}),
        ({"request.timeout.ms": "30000"}, {"socket.timeout.ms": "30000"}),
        ({"request.timeout.ms": "600000"}, {"socket.timeout.ms": "300000"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"batch.size": "0"}, {"batch.size": "1"}),
        (
            {
                "compression.type": "zstd",
                "compression.zstd.level": "3",
                "compression.lz4.level": "9",
            },
            {"compression.type": "zstd", "compression.level": "3"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        ({"client.id": ""}, {}),
        (
            {
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, "
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "range"},
        ),
        (
            {"partition.assignment.strategy": "cooperative-sticky"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
            {"partitioner": "random"},
        ),
        ({"partitioner.ignore.keys": "true"}, {"partitioner": "random"}),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="p\\"=; q";',
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "sasl.password": 'p"=; q',
            },
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f"{SCRAM_MODULE} required username='u' password='p';",
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "u",
                "sasl.password": "p",
            },
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
                "sasl.login.callback.handler.class": "a.Handler",
                "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="i" clientSecret="s" '
                'scope="all" extension_logicalCluster="lkc";',
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "all",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc",
            },
        ),
    ],
)
def test_a_setting_is_translated_into_one_that_a_client_accepts(
    java: dict[str, str], expected: dict[str, str]
) -> None:
    translated = librdkafka_settings(java)
    assert translated == expected
    start_consumer(translated)


def test_kerberos_is_translated() -> None:
    # Not started: whether GSSAPI is there depends on how librdkafka was built.
    assert librdkafka_settings(
        {
            "security.protocol": "SASL_SSL",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
            'useKeyTab=true keyTab="/etc/shop.keytab" principal="shop@EXAMPLE";',
        }
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": "/etc/shop.keytab",
        "sasl.kerberos.principal": "shop@EXAMPLE",
    }


def test_pem_stores_become_files_or_texts() -> None:
    assert librdkafka_settings(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/client.pem",
            "ssl.key.password": "p",
        }
    ) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.key.location": "/client.pem",
        "ssl.certificate.location": "/client.pem",
        "ssl.key.password": "p",
    }
    assert librdkafka_settings(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
        }
    ) == {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CHAIN", "ssl.key.pem": "KEY"}


def test_a_pkcs12_key_store_is_used_as_it_is() -> None:
    store = {"ssl.keystore.location": "/client.p12", "ssl.keystore.password": "p"}
    assert librdkafka_settings({**store, "ssl.keystore.type": "PKCS12"}) == store


@pytest.mark.parametrize(
    ("java", "what", "hint"),
    [
        (
            {"ssl.truststore.location": "/trust.jks"},
            "librdkafka cannot read a trust store of type JKS",
            "keytool -list -rfc -keystore /trust.jks",
        ),
        (
            {"ssl.truststore.location": "/trust.p12", "ssl.truststore.type": "PKCS12"},
            "cannot read a trust store of type PKCS12",
            "ca.pem",
        ),
        (
            {"ssl.keystore.location": "/key.jks", "ssl.keystore.password": "hunter2"},
            "librdkafka cannot read a key store of type JKS",
            "-deststoretype PKCS12",
        ),
        ({"auto.offset.reset": "by_duration:P1D"}, "Java client only", "earliest"),
        ({"partition.assignment.strategy": "a.StickyAssignor"}, "StickyAssignor", "RangeAssignor"),
        ({"partitioner.class": "a.Mine"}, "partitioner.class a.Mine is a Java class", "leave it"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"},
            "sasl.mechanism = AWS_MSK_IAM is known to the Java client only",
            "SCRAM-SHA-512",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "needs sasl.oauthbearer.token.endpoint.url",
            "clientSecret",
        ),
    ],
)
def test_what_librdkafka_cannot_do_is_refused_with_a_way_out(
    java: dict[str, str], what: str, hint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        librdkafka_settings(java)
    assert what in caught.value.what
    assert hint in (caught.value.hint or "")
    assert "hunter2" not in str(caught.value)


def test_a_typo_is_left_for_librdkafka_to_refuse() -> None:
    with pytest.raises(KafkaException, match="No such configuration property"):
        start_consumer(librdkafka_settings({"fetch.max.byte": "1"}))
