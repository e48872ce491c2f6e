"""The examples of stores run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from postgres_server import PostgresServer

EXAMPLES = Path(__file__).parents[3] / "examples"


def _said(name: str, *arguments: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_weather_stations_are_stored_once_a_day() -> None:
    assert _said("weather_stations.py") == [
        "Brocken 2026-11-14 1.4",
        "Zugspitze 2026-11-14 -7.1",
        "Zugspitze 2026-11-15 -9.3",
    ]


def test_a_moving_average_survives_kill_9_in_step() -> None:
    said = _said("moving_average.py")
    killed = next(number for number, line in enumerate(said) if line.startswith("killed"))
    assert said[killed - 1] == "price 50, average 40"
    # What the second member says is what one that was never killed says at those prices.
    right = ["price 10, average 10", "price 20, average 15"]
    right += [f"price {price}, average {price - 10}" for price in range(30, 90, 10)]
    assert 0 < len(said) - killed - 1 < len(right)
    assert said[killed + 1 :] == right[-(len(said) - killed - 1) :]


def test_orders_add_up_in_postgres(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.dsn(postgres_server.create_database())
    assert _said("orders_to_postgres.py", dsn) == ["ann 15", "bob 26", "cyd 40"]
    assert _said("orders_to_postgres.py", dsn) == ["ann 30", "bob 52", "cyd 80"]
