"""Replicas that most tests begin with."""

from __future__ import annotations

import pytest
from machines import Replicas, led_by


@pytest.fixture
def three() -> Replicas:
    """1 leads in epoch 1, with 2 and 3 in sync."""
    replicas = Replicas()
    replicas.told(led_by(1, 1))
    return replicas
