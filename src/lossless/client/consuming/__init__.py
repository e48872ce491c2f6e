"""The consumer: one poll thread, workers, commits of contiguous finished offsets.

consumer.py     Consumer: loops, handlers, beginning and ending
polling.py      the thread that talks to Kafka
assignment.py   partitions that come and go;   positions.py   where they begin
committing.py   what is committed, and when;   progress.py    what may be
chunks.py       records one after the other;   lanes.py       beside each other
workers.py      threads, processes, tasks;     failures.py    when the handler raised
units.py        records and offsets in one transaction of a store
deserializing.py   what the application is given instead of bytes
"""

from lossless.client.consuming.consumer import Consumer

__all__ = ["Consumer"]
