"""Clusters that most tests begin with."""

from __future__ import annotations

import pytest
from brokers import (
    a_cluster,
)
from instant_host import Host


@pytest.fixture
def three() -> Host:
    return a_cluster(1, 2, 3)


@pytest.fixture
def two() -> Host:
    return a_cluster(1, 2)


@pytest.fixture
def alone() -> Host:
    return a_cluster(1)
