"""What a session of ours is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lossless.pipeline.session import COLLECTOR, collectors, setting

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
