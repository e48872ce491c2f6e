"""The folder of a demo: a temporary one, or the folder given by --keep.

lossless.toml, schemas/    the contract
kafka/                     the brokers' data and logs
producers/                 one file of events for each producer
drivers/                   one log for each driver, and the log of the crash points
warehouse/orders           the table
checkpoint/                the checkpoint of the careless job; a Lossless pipeline has none
scratch/                   temporary files of Spark and the drivers
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lossless.demo.orders import SCHEMA
from lossless.errors import BadInput

TOPIC = "shop.orders"
PARTITIONS = 6
REPLICATION_FACTOR = 3
PIPELINE = "orders"

# The Java admin client retries a dead leader until this timeout, then looks up the new one. With
# the default of a minute, Spark would plan no batch for that long.
CLIENT_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The paths of a demo's files."""

    path: Path

    @property
    def contract(self) -> Path:
        return self.path / "lossless.toml"

    @property
    def kafka(self) -> Path:
        return self.path / "kafka"

    @property
    def producers(self) -> Path:
        return self.path / "producers"

    @property
    def table(self) -> Path:
        return self.path / "warehouse" / "orders"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def copies(self) -> Path:
        """The number of rows per order, as the careless job counted them."""
        return self.path / "copies.json"

    @property
    def report(self) -> Path:
        """The audit's report, written by the second driver and read by the demo."""
        return self.path / "audit.pickle"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    @property
    def crash_log(self) -> Path:
        return self.path / "drivers" / "crashes.log"

    def driver_log(self, number: int) -> Path:
        return self.path / "drivers" / f"driver-{number}.log"

    def events(self) -> list[Path]:
        return sorted(self.producers.glob("*.jsonl"))

    def crashes(self) -> list[str]:
        """Returns the crash points that fired. Each is logged before it fires."""
        if not self.crash_log.exists():
            return []
        return [line.partition(" ")[0] for line in self.crash_log.read_text().splitlines()]

    def spark_settings(self) -> dict[str, str]:
        """Returns Spark settings for a quick start, with all temporary files in this folder."""
        return {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(self.scratch),
            "spark.sql.warehouse.dir": str(self.scratch / "spark-warehouse"),
            # Drivers live for half a minute: optimising their code would cost more than it saves.
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.scratch} -XX:-UsePerfData"
            " -XX:TieredStopAtLevel=1",
        }

    def driver_environment(self, crash_points: str) -> dict[str, str]:
        """Returns the environment variables of a driver."""
        return {
            "TMPDIR": str(self.scratch),
            "LOSSLESS_CRASH_POINTS": crash_points,
            "LOSSLESS_CRASH_LOG": str(self.crash_log),
        }

    def write_contract(self, *, client: Mapping[str, str], records_per_batch: int) -> None:
        """Writes lossless.toml and the schema that it names."""
        (self.path / "schemas" / "orders.json").write_text(json.dumps(SCHEMA, indent=2) + "\n")
        # JSON strings are valid TOML basic strings.
        address = "\n".join(f"client.{k} = {json.dumps(v)}" for k, v in client.items())
        spark = "\n".join(f"{k} = {json.dumps(v)}" for k, v in self.spark_settings().items())
        self.contract.write_text(
            f"""\
[guarantee]
delivery = "exactly-once"
survives = {{ broker-crash = 1, leader-crash = true, driver-crash = true }}

[cluster]
{address}

[topics."{TOPIC}"]
partitions = {PARTITIONS}
replication_factor = {REPLICATION_FACTOR}
config.min.insync.replicas = 2

[producers.shop]
client = "librdkafka"
config.acks = "all"
config.enable.idempotence = true

[pipelines.{PIPELINE}]
topics = ["{TOPIC}"]
format = "json"
schema = "schemas/orders.json"
records_per_batch_max = {records_per_batch}
trigger_s = 0.2
config.request.timeout.ms = {CLIENT_TIMEOUT_MS}
config.default.api.timeout.ms = {CLIENT_TIMEOUT_MS}
{spark}

[pipelines.{PIPELINE}.sink]
type = "delta"
path = "./warehouse/orders"
"""
        )


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[DemoFolder]:
    """Yields a temporary folder, or `keep`, which must be new or empty. Raises BadInput."""
    if keep is not None:
        check_keep(keep)
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--keep {keep} cannot be created: {error.strerror}") from error
        yield _create_layout(keep.resolve())
        return
    temporary = Path(tempfile.mkdtemp(prefix="lossless-demo-"))
    try:
        yield _create_layout(temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _create_layout(folder: Path) -> DemoFolder:
    for name in ("producers", "drivers", "scratch", "schemas"):
        (folder / name).mkdir()
    return DemoFolder(folder)


def check_keep(folder: Path | None) -> None:
    """Raises BadInput unless the folder is new or empty. Called before anything else starts."""
    if folder is None:
        return
    try:
        occupied = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise BadInput(f"--keep {folder} cannot be used: {error.strerror}") from error
    if occupied:
        raise BadInput(f"--keep {folder} is not empty", hint="choose a folder that does not exist")
