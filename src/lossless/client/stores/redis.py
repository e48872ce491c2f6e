"""Values in Redis by idempotent put: a record that is written again changes nothing.

    sink = RedisSink(redis.Redis(…), kafka={"bootstrap.servers": …}, prefix="order:")
    consumer.run(sink.write)

A record's key becomes a Redis hash: `value`, and beside it the offset of the newest record that was
applied, for each partition that it came from. One script compares and writes, so a replay, a slow
retry or a zombie never puts an older value over a newer one. Readers: HGET key value.

The sink asks the cluster for the ids of topics: offsets of a topic that was deleted and created
again are not compared with those of the old one, so its records are not taken for older ones.

It is an idempotent put, not a transaction: records become visible one by one, those of one batch
are not stored together, and the offset that the group commits follows in a step of its own.

A record without a value deletes: `value` goes, the offsets stay for `tombstone_s` more, so that a
replay within that time does not bring it back; make it longer than the longest replay.

What Redis has acknowledged it may still lose: `appendfsync always` on the server makes it durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import KafkaException

from lossless.client.errors import Refused, StoreUnavailable
from lossless.client.stores.interface import Message, offset_of, partition_of
from lossless.client.stores.topics import Topics
from lossless.contract.librdkafka import librdkafka_settings
from lossless.errors import BadInput, Unavailable

VALUE = "value"
TOMBSTONE_S = 7 * 24 * 3600.0

# Offsets have 20 digits: Lua's numbers are exact to 2^53 only, texts of one length compare well.
_PUT = """
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if newest and newest >= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[3] == 'put' then
    redis.call('HSET', KEYS[1], 'value', ARGV[4])
    redis.call('PERSIST', KEYS[1])
else
    redis.call('HDEL', KEYS[1], 'value')
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return 1
"""


class KeyedMessage(Message, Protocol):
    def key(self) -> Any: ...
    def value(self) -> Any: ...


class RedisSink:
    """`client`: a redis.Redis that the caller made and closes. `kafka`: settings of the cluster
    that the records come from, or a function that returns the id of a topic."""

    def __init__(
        self,
        client: Any,
        *,
        kafka: Mapping[str, object] | Callable[[str], str | None],
        prefix: str = "",
        tombstone_s: float = TOMBSTONE_S,
    ) -> None:
        try:
            import redis
        except ImportError as error:
            raise Unavailable(
                "the driver for Redis is not installed", hint="pip install 'lossless[redis]'"
            ) from error
        if not tombstone_s >= 0.001:
            raise BadInput(f"tombstone_s must be at least a millisecond, not {tombstone_s}")
        self._errors: Any = redis.exceptions
        self._client = client
        self._topic_id = kafka if callable(kafka) else _asking(kafka)
        self._sources: dict[str, str] = {}  # by topic
        self._prefix = prefix.encode()
        self._tombstone_ms = int(tombstone_s * 1000)
        self._put = client.register_script(_PUT)

    def write(self, message: KeyedMessage) -> bool:
        """Whether it changed something; not when this record, or a newer one, was there before."""
        with self._failing():
            return bool(self._send(message, self._client))

    def write_many(self, messages: Iterable[KeyedMessage]) -> int:
        """In one exchange; how many changed something. When it fails some may be written: again."""
        with self._failing(), self._client.pipeline(transaction=False) as pipeline:
            for message in messages:
                self._send(message, pipeline)
            return sum(pipeline.execute())

    def get(self, key: str | bytes) -> bytes | None:
        with self._failing():
            value: bytes | None = self._client.hget(self._key(key), VALUE)
            return value

    def _send(self, message: KeyedMessage, client: Any) -> Any:
        key, value = message.key(), message.value()
        topic, partition = partition_of(message)
        if key is None:
            raise Refused(
                f"a record without a key has no place in Redis: {topic}-{partition}, "
                f"offset {offset_of(message)}",
                hint="key the records when they are sent",
            )
        what = ("delete", self._tombstone_ms) if value is None else ("put", value)
        source = f"{self._source(topic)}-{partition}"  # never `value`: a number is at its end
        return self._put(
            keys=[self._key(key)], args=[source, f"{offset_of(message):020d}", *what], client=client
        )

    def _source(self, topic: str) -> str:
        """The topic's id, or its name where the brokers are older than ids."""
        if topic not in self._sources:
            self._sources[topic] = self._topic_id(topic) or topic
        return self._sources[topic]

    def _key(self, key: str | bytes) -> bytes:
        return self._prefix + (key.encode() if isinstance(key, str) else key)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise BadInput(
                f"Redis: {error}", hint="check user and password of the client"
            ) from error
        # These come and go: no connection, loading, a replica that is not the primary any more.
        except (
            errors.ConnectionError,
            errors.TimeoutError,
            errors.ReadOnlyError,
            errors.ClusterDownError,
            errors.TryAgainError,
            errors.OutOfMemoryError,
        ) as error:
            raise StoreUnavailable(f"Redis: {error}", hint="is the server running?") from error
        except errors.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise BadInput(
                f"Redis: {error}: a key of a record is in use for something else",
                hint="give the sink a prefix of its own",
            ) from error


def _asking(kafka: Mapping[str, object]) -> Callable[[str], str | None]:
    settings = {name: value for name, value in kafka.items() if callable(value)}
    plain = {name: str(value) for name, value in kafka.items() if name not in settings}
    topics = Topics({**librdkafka_settings(plain), **settings})

    def ask(topic: str) -> str | None:
        try:
            return topics.ids([topic]).get(topic)
        except KafkaException as error:
            raise StoreUnavailable(
                f"the id of topic {topic} could not be read: {error.args[0].str()}",
                hint="are the brokers available, and may this client describe the topic?",
            ) from error

    return ask
