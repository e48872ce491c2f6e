from __future__ import annotations

import pytest
from group_host import Host


@pytest.fixture
def host() -> Host:
    return Host()
