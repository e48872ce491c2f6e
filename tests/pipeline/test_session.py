"""What a session of ours is started with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from lossless.errors import BadInput
from lossless.pipeline.session import (
    COLLECTOR,
    RELIED_ON,
    _stderr_to,
    check_settings,
    chosen_settings,
    collectors,
    page_address,
    setting,
)
from lossless.pipeline.transform import describe_failure
from shop import MakeShop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER, EXECUTOR = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"


def test_the_collector_is_ours_where_nobody_chose_another() -> None:
    assert collectors({}, {}) == {DRIVER: COLLECTOR, EXECUTOR: COLLECTOR}
    chosen = {"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseG1GC"}
    assert collectors(chosen, {}) == {EXECUTOR: COLLECTOR}
    assert collectors({"spark.driver.extraJavaOptions": "-Xss4m"}, {}) == collectors({}, {})


@pytest.mark.parametrize(
    "environment",
    [
        {"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"},
        {"SPARK_HOME": "/opt/spark"},
        {"SPARK_CONF_DIR": "/etc/spark"},
    ],
)
def test_an_environment_that_may_name_a_collector_is_left_alone(
    environment: dict[str, str],
) -> None:
    assert collectors({}, environment) == {}


def test_no_other_account_reads_the_log_of_a_session(tmp_path: Path) -> None:
    log = tmp_path / ".lossless" / "spark.log"
    log.parent.mkdir()
    log.touch(0o644)
    with _stderr_to(log):
        os.write(2, b"a line")
    assert log.read_text() == "a line"
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("before", [None, "theirs"])
def test_a_setting_is_the_users_own_again_after_a_failure_too(
    spark: SparkSession, before: str | None
) -> None:
    name = "spark.lossless.tests.setting"
    if before is not None:
        spark.conf.set(name, before)

    def fail() -> None:
        with setting(spark, name, "ours"):
            assert spark.conf.get(name) == "ours"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert spark.conf.get(name, None) == before
    spark.conf.unset(name)


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,1024]"])
def test_a_local_master_is_reachable_from_this_machine_only(master: str) -> None:
    chosen = chosen_settings([], master, {})
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert page_address(master, chosen) == {"SPARK_LOCAL_IP": "127.0.0.1"}


def test_the_address_of_the_web_page_follows_the_setting_for_the_other_ports() -> None:
    chosen = chosen_settings([], "local[*]", {"spark.driver.bindAddress": "10.0.0.7"})
    assert page_address("local[*]", chosen) == {"SPARK_LOCAL_IP": "10.0.0.7"}


def test_executors_of_a_cluster_reach_the_driver() -> None:
    chosen = chosen_settings([], "spark://10.0.0.1:7077", {})
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & chosen.keys()
    assert page_address("spark://10.0.0.1:7077", chosen) == {}


def test_the_web_page_can_be_switched_off_and_its_kill_button_on() -> None:
    assert "spark.ui.enabled" not in chosen_settings([], "local[*]", {})
    assert chosen_settings([], "yarn", {})["spark.ui.killEnabled"] == "false"
    asked = {"spark.ui.enabled": "false", "spark.ui.killEnabled": "true"}
    assert chosen_settings([], "local[*]", asked).items() >= asked.items()


_SESSION = """
import json, os, signal, sys, threading
from pathlib import Path
import psutil
from pyspark import SparkContext
from lossless.pipeline.session import build_session

told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
spark = build_session("signals", master="local[1]", log=Path(sys.argv[1]))
java = psutil.Process(SparkContext._gateway.proc.pid)
listening = [c.laddr.ip for c in java.net_connections("inet") if c.status == "LISTEN"]
page = spark.sparkContext.uiWebUrl
print(json.dumps({"java": java.pid, "listening": listening, "page": page}), flush=True)
told.wait(120)
print(json.dumps({"told": told.is_set(), "counted": spark.range(7).count()}), flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def own_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A program with a session of ours and Spark's web page, alone in its process group."""
    log = tmp_path_factory.mktemp("session") / "spark.log"
    with subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(log)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def test_nothing_of_a_local_session_listens_on_the_network_and_sigterm_spares_its_jvm(
    own_session: subprocess.Popen[str],
) -> None:
    found = _line(own_session.stdout)
    assert found["page"] is not None
    assert all(ip_address(address).is_loopback for address in _unmapped(found["listening"]))
    # As a scheduler does to a process group, and a service manager to a control group.
    os.killpg(own_session.pid, signal.SIGTERM)
    os.kill(found["java"], signal.SIGTERM)
    assert _line(own_session.stdout) == {"told": True, "counted": 7}
    assert own_session.wait(60) == 0


def _line(stream: IO[str] | None) -> Any:
    assert stream is not None
    return json.loads(stream.readline())


def _unmapped(addresses: list[str]) -> list[str]:
    """IPv4 addresses without the prefix that IPv6 sockets give them."""
    return [address.removeprefix("::ffff:") for address in addresses]


@pytest.mark.parametrize("name", RELIED_ON)
def test_a_setting_that_changes_what_records_mean_is_refused_by_name(
    spark: SparkSession, name: str
) -> None:
    check_settings(spark)
    other = {"false": "true", "TIMESTAMP_LTZ": "TIMESTAMP_NTZ"}[RELIED_ON[name]]
    with (
        setting(spark, name, other),
        pytest.raises(BadInput, match=re.escape(f"{name} = {other}")),
    ):
        check_settings(spark)


def test_the_cause_of_a_failed_query_is_what_is_reported() -> None:
    said = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Unknown inline "
        "modifier near index 2 SQLSTATE: XXKST\n=== Streaming Query ===\n"
        "Identifier: lossless orders [id = 1, runId = 2]\nCurrent State: ACTIVE"
    )
    failure = describe_failure(RuntimeError(said))
    assert failure.message.startswith("Unknown inline modifier near index 2")


def test_a_topic_pattern_that_java_does_not_compile_is_refused(shop: MakeShop) -> None:
    orders = shop()
    pipeline = orders.pipeline(topics=f"topic_pattern = '(?P<x>{orders.topic})'")
    with pytest.raises(BadInput, match="topic_pattern: not a regular expression that Java"):
        pipeline.run(once=True)
