"""Readings of weather stations: one a day from each, stored once however often it is sent.

    python examples/weather_stations.py                    on a cluster of its own
    python examples/weather_stations.py localhost:9092     on yours; rows go to weather.db

A station that hears no answer sends its reading again: a new record, which no broker can know to be
the same. (station, date) says what it is. Row, key and offset are stored in one transaction, so a
crash between any two of them leaves none.
"""

import json
import sys
import tempfile
from pathlib import Path

import lossless
from lossless.client.stores import Deduplicator, SqliteStore

READINGS = [
    ("Zugspitze", "2026-11-14", -7.1),
    ("Brocken", "2026-11-14", 1.4),
    ("Zugspitze", "2026-11-14", -7.1),  # again: the station heard no answer
    ("Zugspitze", "2026-11-15", -9.3),
    ("Brocken", "2026-11-14", 1.4),  # and again
]


def main(servers: str, folder: Path) -> None:
    with lossless.Producer({"bootstrap.servers": servers}) as producer:
        for station, date, celsius in READINGS:
            reading = {"station": station, "date": date, "celsius": celsius}
            producer.send("weather", json.dumps(reading).encode(), key=station.encode())

    store = SqliteStore(folder / "weather.db")
    store.execute("CREATE TABLE IF NOT EXISTS readings (station TEXT, date TEXT, celsius REAL)")
    stations = Deduplicator(store, age_max_s=30 * 24 * 3600)
    handled = 0

    def handle(message, unit):
        reading = json.loads(message.value())
        if stations.first_time((reading["station"], reading["date"]), unit):
            unit.execute("INSERT INTO readings VALUES (?, ?, ?)", tuple(reading.values()))
        nonlocal handled
        handled += 1
        if handled >= len(READINGS):
            consumer.stop()

    settings = {"bootstrap.servers": servers}
    with store, lossless.Consumer("weather", settings, group="weather", store=store) as consumer:
        consumer.run(handle)
        for row in store.execute("SELECT * FROM readings ORDER BY date, station"):
            print(*row)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], Path())
    else:
        with lossless.cluster() as kafka, tempfile.TemporaryDirectory() as folder:
            main(kafka.bootstrap_servers, Path(folder))
