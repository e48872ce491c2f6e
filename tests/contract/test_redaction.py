"""Secrets: shown nowhere, whatever they are and however they came in."""

from __future__ import annotations

import string
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.contract import (
    ContractError,
    PostgresSinkContract,
    load_contract,
    redact_text,
    redacted,
    redaction,
)

# Marked, so that finding it in a message cannot be an accident.
SECRETS = st.text(alphabet=string.ascii_letters + string.digits + "!@#%&*-_. ", max_size=20).map(
    lambda text: f"S3cr3t{text}t3rc3S"
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = set(redaction._remembered)
    redaction._remembered.clear()
    yield
    redaction._remembered.clear()
    redaction._remembered.update(before)


def contract_in(folder: str, text: str) -> Path:
    file = Path(folder) / "lossless.toml"
    file.write_text(text, encoding="utf-8")
    return file


def shown_of(settings: Mapping[str, str]) -> str:
    return f"{redacted(settings)} {redact_text(f'no connection with {dict(settings)}')}"


@settings(deadline=None)  # it writes files, on machines that may be busy
@given(secret=SECRETS)
def test_a_setting_from_the_environment_or_a_file_is_never_shown(secret: str) -> None:
    lines = {
        "some.setting": '"before ${SECRET} after"',
        "other.setting": '"${file:password}"',
        "sasl.jaas.config": "'Module required password=\"${SECRET}\";'",
    }
    for name, value in lines.items():
        redaction._remembered.clear()  # each must be known by itself
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "password").write_text(secret + "\n")
            file = contract_in(folder, f"[cluster]\nclient.{name} = {value}\n")
            contract = load_contract(file, environment={"SECRET": secret})
        assert secret in contract.cluster.client[name]
        assert secret not in repr(contract)
        assert secret not in shown_of(contract.cluster.client)
        assert secret not in redact_text(f"login with {secret} failed")


@settings(deadline=None)
@given(secret=SECRETS)
def test_a_password_in_a_dsn_is_never_shown(secret: str) -> None:
    redaction._remembered.clear()
    with tempfile.TemporaryDirectory() as folder:
        dsn = 'sink.dsn = "host=db password=${SECRET}"\nsink.table = "t"'
        contract = load_contract(
            contract_in(folder, POSTGRES + dsn), environment={"SECRET": secret}
        )
    sink = contract.pipelines["a"].sink
    assert isinstance(sink, PostgresSinkContract)
    assert secret in sink.dsn
    assert secret not in repr(contract)
    assert secret not in redact_text(f"{sink.dsn}: {secret} was refused")


def test_a_secret_that_is_part_of_another_leaves_nothing_of_it(tmp_path: Path) -> None:
    load_contract(
        contract_in(str(tmp_path), '[cluster]\nclient.a = "${A}"\nclient.b = "${B}"'),
        environment={"A": "hunter2", "B": "hunter2-and-more"},
    )
    assert redact_text("hunter2-and-more or hunter2") == "*** or ***"


PIPELINE = '[pipelines.a]\ntopics = ["a"]\n'
DELTA = 'sink.type = "delta"\nsink.path = "a"'
POSTGRES = PIPELINE + 'format = "raw"\nsink.type = "postgres"\n'
BROKEN_LINES = [
    '[cluster]\nbrokers = "${SECRET}"',
    '[cluster]\nracks = ["${SECRET}", "${SECRET}"]',
    '[cluster]\nproperties = "${SECRET}"',
    '[cluster]\nclient.password = "${SECRET}"\nclient."password" = [1]',
    '[cluster]\nclient.a.b = "${SECRET}"\nclient."a.b" = "${SECRET}"',
    '[cluster]\nclient.a = "${SECRET} ${MISSING}"',
    '[guarantee]\ndelivery = "${SECRET}"',
    '[producers.a]\nclient = "${SECRET}"',
    PIPELINE + 'schema = "${SECRET}"\n' + DELTA,
    PIPELINE + 'schema = "x y"\ntransform = "${SECRET}:"\n' + DELTA,
    PIPELINE + 'schema = "x y"\nstart = "${SECRET}"\n' + DELTA,
    PIPELINE.replace('"a"', '"${SECRET} "') + 'schema = "x y"\n' + DELTA,
    PIPELINE + 'schema = "x y"\nsink.type = "${SECRET}"',
    POSTGRES + 'sink.dsn = "${SECRET}"\nsink.table = "t"',
    POSTGRES + 'sink.dsn = "host=a password=${SECRET}"\nsink.table = "${SECRET}."',
]


@pytest.mark.parametrize("text", BROKEN_LINES)
def test_no_message_about_a_contract_shows_what_a_reference_stands_for(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(ContractError) as caught:
        load_contract(contract_in(str(tmp_path), text), environment={"SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "basic.auth.user.info",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.shop.dfs",
        "my.api-key",
        "auth.token",
        "dsn",
    ],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert redacted({name: "v"}) == {name: "***"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "a:9092,b:9092"),
        ("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("ssl.keystore.location", "/client.p12"),
        ("ssl.truststore.type", "PEM"),
        ("sasl.oauthbearer.token.endpoint.url", "https://login.example/token"),
        ("delegation.token.expiry.time.ms", "1000"),
        ("spark.sql.shuffle.partitions", "4"),
    ],
)
def test_what_is_no_secret_stays_readable(name: str, value: str) -> None:
    assert redacted({name: value}) == {name: value}


def test_an_address_from_the_environment_stays_readable(tmp_path: Path) -> None:
    contract = load_contract(
        contract_in(
            str(tmp_path),
            '[cluster]\nclient.bootstrap.servers = "${KAFKA}"\nclient.check.crcs = "${CHECK}"',
        ),
        environment={"KAFKA": "broker:9092", "CHECK": "true"},
    )
    assert redacted(contract.cluster.client) == {
        "bootstrap.servers": "broker:9092",
        "check.crcs": "true",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://shop:hunter2@db:5432/shop", "postgresql://shop:***@db:5432/shop"),
        ("postgresql://shop:hun@ter2@db/shop", "postgresql://shop:***@db/shop"),
        ("host=db password=hunter2 user=shop", "host=db password=*** user=shop"),
        ("host=db password='hunter 2' user=shop", "host=db password=*** user=shop"),
        ('X required username="u" password="hunter2";', 'X required username="u" password=***;'),
        ("nothing to hide: 12:34 @ noon", "nothing to hide: 12:34 @ noon"),
    ],
)
def test_a_password_that_shows_itself_is_taken_out_of_any_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_a_password_of_a_dsn_is_remembered_as_written_and_as_meant(tmp_path: Path) -> None:
    load_contract(
        contract_in(
            str(tmp_path),
            '[pipelines.a]\ntopics = ["a"]\nformat = "raw"\nsink.type = "postgres"\n'
            'sink.dsn = "postgresql://u:hunter%402@db/shop"\nsink.table = "t"',
        ),
        environment={},
    )
    assert redact_text("no login with hunter@2 or hunter%402") == "no login with *** or ***"


def test_a_secret_of_a_properties_file_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("ssl.key.password=hunter2\n")
    load_contract(
        contract_in(str(tmp_path), '[cluster]\nproperties = "client.properties"'), environment={}
    )
    assert redact_text("wrong: hunter2") == "wrong: ***"
