"""The parts that the matrix breaks: three brokers, a database server, drivers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from delivery import Delivery, MakeDelivery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def make_delivery(
    lossless_cluster: Any, spark: SparkSession, postgres_server: Any, tmp_path: Path
) -> Iterator[MakeDelivery]:
    made: list[Delivery] = []

    def make(sink: str, **settings: Any) -> Delivery:
        name = f"cell-{uuid.uuid4().hex[:8]}"
        folder = tmp_path / name
        folder.mkdir()
        delivery = Delivery(
            folder=folder,
            topic=name,
            sink=sink,
            bootstrap_servers=lossless_cluster.bootstrap_servers,
            spark=spark,
            dsn=postgres_server.dsn(postgres_server.create_database()),
            **settings,
        )
        made.append(delivery)
        delivery.begin()
        return delivery

    yield make
    for delivery in made:
        for process in delivery.drivers:
            _end(process.pid)
            process.wait()


def _end(pid: int) -> None:
    """Kills a driver and its JVM, stopped or not."""
    try:
        driver = psutil.Process(pid)
        family = [driver, *driver.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
