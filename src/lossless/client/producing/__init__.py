"""Sending: every record is acknowledged, parked, or an error that somebody is told.

producer.py   what applications use; delivery.py: what `send` gives back
preparing.py  checking.py  handing_over.py  a record on its way to librdkafka, step by step
standing.py   whether a producer can still be used; processes.py: when its process ends or forks
giving_up.py  what becomes of a record that is given up: a decision; failing.py carries it out
spool.py      records on disk, in order; parking.py: to disk and back
serving.py    the one thread behind a producer; deliveries.py: its accounts
reporting.py  what was acknowledged, told to the audit topic
transaction.py  several records and offsets, together or not at all; transacting.py: one by one
"""

from lossless.client.producing.delivery import Acknowledged, Delivery
from lossless.client.producing.giving_up import Callback, DeadLetter, Drop, Park, Raise
from lossless.client.producing.producer import Producer
from lossless.client.producing.transaction import Transaction

__all__ = [
    "Acknowledged",
    "Callback",
    "DeadLetter",
    "Delivery",
    "Drop",
    "Park",
    "Producer",
    "Raise",
    "Transaction",
]
