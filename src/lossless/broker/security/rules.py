"""What a rule about an API looks like, and the few shapes that most of them have.

A rule looks at a request and at what whoever asks may do. It passes the request as it is (None), or
says what is left of it and what the answer has to say about the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from lossless.core.messages import Error
from lossless.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from lossless.wire.codec import Fields
from lossless.wire.context import Broker

TOPIC_DENIED = Error.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = Error.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = Error.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_DENIED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_NOTHING: Fields = {}


class Permissions(Protocol):
    """What one principal may do, from where it connects."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool: ...

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        """On one resource of the kind at least."""


class Asking(NamedTuple):
    message: Any  # as kio has it
    version: int
    broker: Broker
    permissions: Permissions

    def on_cluster(self, operation: Operation) -> bool:
        return self.permissions.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def on_topic(self, operation: Operation, name: str) -> bool:
        return self.permissions.may(operation, ResourceType.TOPIC, name)

    def on_group(self, operation: Operation, name: str) -> bool:
        return self.permissions.may(operation, ResourceType.GROUP, name)

    def on_transaction(self, operation: Operation, name: str) -> bool:
        return self.permissions.may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def topic_name(self, topic: Any) -> str | None:
        """By its name or by its id; None if nobody knows the id, and nobody can be harmed."""
        name: str | None = getattr(topic, "name", None)
        topic_id = getattr(topic, "topic_id", None)
        if name is None and topic_id is not None:
            name = self.broker.image.topic_names.get(topic_id.int)
        return name


class Verdict(NamedTuple):
    message: Any | None  # what is to be served; None: nothing
    refused: Fields = _NOTHING  # what the answer says besides; all that it says, if nothing is left
    edit: Callable[[Any], Any] | None = None  # of the answer: without what may not be seen


Rule = Callable[[Asking], Verdict | None]
Refusal = Callable[[Asking, Any], Error | None]
Told = Callable[[Asking, Any, Error], Fields]  # the answer's element for one that is refused


def everybody(_asking: Asking) -> Verdict | None:
    """No permission is needed."""
    return None


def whole(error_of: Callable[[Asking], Error | None], told: Callable[[Error], Fields]) -> Rule:
    """All of the request, or nothing of it."""

    def rule(asking: Asking) -> Verdict | None:
        error = error_of(asking)
        return None if error is None else Verdict(None, told(error))

    return rule


def on_cluster(operation: Operation, told: Callable[[Error], Fields] | None = None) -> Rule:
    def error_of(asking: Asking) -> Error | None:
        return None if asking.on_cluster(operation) else CLUSTER_DENIED

    return whole(error_of, told or _error_code)


def _error_code(error: Error) -> Fields:
    return {"error_code": error}


def with_message(error: Error) -> Fields:
    return {"error_code": error, "error_message": error.name}


def each(field: str, answer: str, error_of: Refusal, told: Told) -> Rule:
    """Every element of a list for itself."""

    def rule(asking: Asking) -> Verdict | None:
        kept, refused = [], []
        for element in getattr(asking.message, field) or ():
            error = error_of(asking, element)
            if error is None:
                kept.append(element)
            else:
                refused.append(told(asking, element, error))
        if not refused:
            return None
        left = replace(asking.message, **{field: tuple(kept)}) if kept else None
        return Verdict(left, {answer: refused})

    return rule


def hiding(field: str, is_visible: Callable[[Asking, Any], bool]) -> Rule:
    """Everything is served, and elements of the answer that may not be seen are left out."""

    def rule(asking: Asking) -> Verdict | None:
        return Verdict(asking.message, edit=without(field, lambda said: is_visible(asking, said)))

    return rule


def visible_topic(asking: Asking, topic: Any) -> bool:
    return topic.name is None or asking.on_topic(Operation.DESCRIBE, topic.name)


def without(field: str, is_visible: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def edit(answer: Any) -> Any:
        return replace(answer, **{field: tuple(filter(is_visible, getattr(answer, field)))})

    return edit


def first_of(*rules: Rule) -> Rule:
    """The first that has something to say."""

    def rule(asking: Asking) -> Verdict | None:
        return next((said for one in rules if (said := one(asking)) is not None), None)

    return rule


# How answers speak of topics and their partitions


class Shape(NamedTuple):
    """The names that an API has for them: of the request, then of the answer."""

    partitions: str = "partitions"
    number: str | None = "partition_index"  # None: partitions are numbers
    name: str = "name"
    told_partitions: str = "partitions"
    told_number: str = "partition_index"
    told_error: str = "error_code"
    told_besides: Mapping[str, Any] = {}  # of each partition

    def told(self, _asking: Asking, topic: Any, error: Error) -> Fields:
        return {
            **{one: getattr(topic, one) for one in (self.name, "topic_id") if hasattr(topic, one)},
            self.told_partitions: [
                {self.told_number: number, self.told_error: error, **self.told_besides}
                for number in self.numbers(topic)
            ],
        }

    def numbers(self, topic: Any) -> Iterable[int]:
        said = getattr(topic, self.partitions)
        return said if self.number is None else [getattr(one, self.number) for one in said]


def topic_refusal(operation: Operation, name: str = "name") -> Refusal:
    def error_of(asking: Asking, topic: Any) -> Error | None:
        known = getattr(topic, name, None) or asking.topic_name(topic)
        return None if known is None or asking.on_topic(operation, known) else TOPIC_DENIED

    return error_of
