"""A proxy between clients and any Kafka cluster, for faults of the network."""

from lossless.proxy.address import Address
from lossless.proxy.counters import Counters
from lossless.proxy.proxy import Direction, Proxy

__all__ = ["Address", "Counters", "Direction", "Proxy"]
