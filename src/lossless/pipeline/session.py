"""The Spark session: built here with the pinned jars, or the user's own, checked."""

from __future__ import annotations

import locale
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossless.engines.private import FILE_MODE, make_private, open_privately
from lossless.errors import BadInput, Unavailable
from lossless.jars import jars
from lossless.jars.java import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a session of ours is started with; a contract's `spark` settings come on top.
DEFAULTS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    # The page has no login: whoever reaches it could end the query.
    "spark.ui.killEnabled": "false",
    # The only token provider that can be fetched is of another release; nobody needs tokens here.
    "spark.security.credentials.kafka.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Without it the first read of a small Delta table shuffles into 50 partitions.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The ledger counts what the table holds, and hashes it. A checksum of Delta's beside every
    # commit costs, on a local disk, ten processes that Hadoop starts to write it.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    # A batch is written to a few directories at once: without it every task sorts its rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.session.timeZone": "UTC",
    # Smaller and faster than the 96 bits that Spark keeps for readers of ten years ago.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A query whose thread waits for a server cannot be interrupted, and a stop must return.
    "spark.sql.streaming.stopTimeout": "30s",
    # Every offset is another one, and every hash: a dictionary of them is work for nothing.
    "spark.hadoop.parquet.enable.dictionary#_lossless.offset": "false",
    "spark.hadoop.parquet.enable.dictionary#_lossless_content_hash": "false",
}


# Batches want throughput, and no pause is too long for them: an eighth faster than with G1.
COLLECTOR = "-XX:+UseParallelGC"
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

# With a local master nothing of Spark needs to be reachable from other machines.
LOOPBACK = "127.0.0.1"
BIND_ADDRESS = "spark.driver.bindAddress"
LOCAL_ONLY: Mapping[str, str] = {"spark.driver.host": LOOPBACK, BIND_ADDRESS: LOOPBACK}
# Spark takes the address of its web page from the environment and from nowhere else.
PAGE_ADDRESS = "SPARK_LOCAL_IP"


def build_session(
    name: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """A session with the pinned jars. Workers run the interpreter that runs this.

    What the JVM writes to stderr goes to `log` when given: its start-up chatter and its logs do
    not belong between the lines of a command.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable(
            "PySpark is not installed", hint="pip install 'lossless[spark]'"
        ) from error

    java()  # PySpark would only say that its gateway exited
    if log is not None:
        check_locale([str(log)])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    chosen = chosen_settings([str(path) for path in jars("spark")], master, settings or {})
    builder = SparkSession.builder.appName(f"lossless {name}").master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log), _environment(page_address(master, chosen)):
            _start_jvm({"spark.app.name": f"lossless {name}", "spark.master": master, **chosen})
            return builder.getOrCreate()
    except Exception as error:
        raise Unavailable(
            f"Spark did not start: {str(error).strip().partition(chr(10))[0]}",
            hint=f"its log: {log}" if log else None,
        ) from error


def check_locale(paths: Iterable[str]) -> None:
    """Raises BadInput for a path that a JVM cannot name in the locale of this process.

    Java 17 takes the encoding of file names from the locale and from nothing else; Python uses
    UTF-8 also where the locale is C.
    """
    encoding = locale.getencoding()
    for path in paths:
        try:
            path.encode(encoding)
        except UnicodeEncodeError:
            raise BadInput(
                f"the locale of this process ({encoding}) cannot express {path!r}, and Java would "
                "look for another name",
                hint="set LC_ALL=C.UTF-8",
            ) from None


def chosen_settings(
    jar_files: Sequence[str], master: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """Everything that a session is started with; `settings` win over the defaults."""
    chosen = {
        **DEFAULTS,
        **(LOCAL_ONLY if is_local(master) else {}),
        "spark.jars": ",".join(jar_files),
        # py4j reaches Delta's classes only through the driver's own class path.
        "spark.driver.extraClassPath": os.pathsep.join(jar_files),
        **settings,
    }
    return {**collectors(chosen, os.environ), **chosen}


def page_address(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment that binds the web page to the address of the driver's other ports."""
    return {PAGE_ADDRESS: settings[BIND_ADDRESS]} if is_local(master) else {}


def is_local(master: str) -> bool:
    """Whether the executors are threads or processes that this driver starts itself."""
    return master.startswith("local")


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Starts the JVM out of reach of the signals that ask this process to finish its work.

    Service managers, schedulers and terminals send SIGTERM and SIGINT to every process of a group
    or a control group. A JVM that obeyed them would be gone before the batch under way is
    committed. It still ends with this process, because its standard input ends.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # a JVM is there already, and may not be ours
    conf = SparkConf().setAll(list(settings.items()))
    gateway: Any = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables are set for what is started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def collectors(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that choose COLLECTOR where nobody has chosen another.

    A JVM that is told of two does not start, and what the files of a Spark installation say is
    not known here: who has one is left alone.
    """
    if environment.keys() & {"SPARK_HOME", "SPARK_CONF_DIR"}:
        return {}
    said = [environment.get(name, "") for name in JAVA_VARIABLES]
    return {
        f"spark.{process}.defaultJavaOptions": COLLECTOR
        for process in ("driver", "executor")
        if not re.search(
            r"-XX:\+Use\w*GC\b",
            " ".join([*said, settings.get(f"spark.{process}.extraJavaOptions", "")]),
        )
    }


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """A JVM started inside inherits `log` as its stderr; this process gets its own back."""
    if log is None:
        yield
        return
    make_private(log.parent)
    sys.stderr.flush()
    ours = os.dup(2)
    with open(log, "ab", opener=open_privately) as file:
        os.fchmod(file.fileno(), FILE_MODE)  # an earlier version let other accounts read it
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


# Settings that change what the SQL of the decoder and of content hashes means, and the values that
# both are written for. Some of the others change values in silence.
RELIED_ON: Mapping[str, str] = {
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.variant.allowDuplicateKeys": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}


def check_settings(spark: SparkSession) -> None:
    """Refuses a session with a setting that would change what records mean."""
    for name, needed in RELIED_ON.items():
        found = spark.conf.get(name, needed) or needed
        if found.lower() != needed.lower():
            raise BadInput(
                f"{name} = {found} in the Spark session changes how records are decoded",
                hint=f"the pipeline needs {name} = {needed}, which is the default",
            )


def check_session(spark: object) -> None:
    """Refuses what cannot run a pipeline: Spark Connect has no JVM to commit through."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BadInput(
            "a Spark Connect session cannot run a pipeline: the sinks commit through the driver's "
            "JVM, which a Connect client does not have",
            hint="use a classic session (SparkSession.builder.master(...)) or `lossless run`",
        )


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting of a session that may be the user's, for the length of a block."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)
