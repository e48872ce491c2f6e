from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from audited_topic import AuditedTopic

from lossless.pipeline.audit import AuditReport, audit
from lossless.pipeline.audit.auditor import Audited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lossless.engines.local.planned import PlannedCluster


@pytest.fixture(scope="session")
def client_settings(lossless_cluster: PlannedCluster) -> Mapping[str, str]:
    return lossless_cluster.client_settings


Auditor = Callable[..., AuditReport]


@pytest.fixture
def audited(spark: SparkSession, client_settings: Mapping[str, str]) -> Auditor:
    def run(topic: AuditedTopic, sink: Audited, **more: Any) -> AuditReport:
        return audit(
            spark, pipeline=topic.pipeline, sink=sink, client_settings=client_settings, **more
        )

    return run
