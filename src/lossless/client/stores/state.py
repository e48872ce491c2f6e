"""State of a partition: JSON values under string keys, whose changes commit with the offset.

    StateCache   what is known to be stored, as text; lives as long as the partition is owned
    State        what a handler sees in one unit: the cache, and its own changes on top

A partition has one owner, so what was read once stays true until this owner changes it; the cache
is dropped when that is in doubt (rollback, an unknown outcome) or over (release, PartitionLost).
Values are kept as text and parsed for each unit: what a handler keeps from an earlier unit and
changes there is nobody's state any more. Within a unit changes in place count, because whatever was
handed out is compared with its text at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Protocol

from lossless.client.stores.interface import JSON
from lossless.errors import BadInput

CACHED_KEYS_MAX = 100_000


class StoredState(Protocol):
    """The rows of one partition, read in the unit's transaction."""

    def load(self, key: str) -> str | None: ...

    def load_all(self) -> dict[str, str]: ...


class StateCache:
    """Texts as they are stored. Forgets everything rather than grow beyond its bound."""

    __slots__ = ("_complete", "_keys_max", "_texts")

    def __init__(self, keys_max: int = CACHED_KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._texts: dict[str, str | None] = {}  # None: known not to be there
        self._complete = False  # every key that is stored is in it

    def text(self, key: str, stored: StoredState) -> str | None:
        if key not in self._texts:
            if self._complete:
                return None
            text = stored.load(key)
            self._make_room(1)
            self._texts[key] = text
            return text
        return self._texts[key]

    def differs(self, key: str, text: str | None) -> bool:
        """Whether it has to be written: it does when nobody has looked yet what is stored."""
        if key in self._texts:
            return self._texts[key] != text
        return not self._complete or text is not None

    def all_texts(self, stored: StoredState) -> dict[str, str]:
        if self._complete:
            return {key: text for key, text in self._texts.items() if text is not None}
        texts = stored.load_all()
        if len(texts) <= self._keys_max:
            self._texts = dict(texts)
            self._complete = True
        return texts

    def committed(self, changes: Mapping[str, str | None]) -> None:
        self._make_room(len(changes))
        if len(changes) <= self._keys_max:
            self._texts.update(changes)

    def clear(self) -> None:
        self._texts.clear()
        self._complete = False

    def _make_room(self, count: int) -> None:
        if len(self._texts) + count > self._keys_max:
            self.clear()


class State(MutableMapping[str, JSON]):
    """The state of one partition in one unit."""

    __slots__ = ("_before", "_cache", "_deleted", "_given", "_place", "_stored")

    def __init__(self, place: str, cache: StateCache, stored: StoredState) -> None:
        self._place = place
        self._cache = cache
        self._stored = stored
        self._given: dict[str, JSON] = {}  # handed out or set in this unit
        self._deleted: set[str] = set()
        # How the keys were that were touched since `watch`.
        self._before: dict[str, tuple[str, str | None]] | None = None

    def __getitem__(self, key: str) -> JSON:
        self._note(key)
        if key in self._given:
            return self._given[key]
        text = None if key in self._deleted else self._cache.text(key, self._stored)
        if text is None:
            raise KeyError(key)
        value = self._given[key] = json.loads(text)
        return value

    def __setitem__(self, key: str, value: JSON) -> None:
        _check_key(key, self._place)
        self._encoded(key, value)  # said here, where the value comes from, and not at the commit
        self._note(key)
        self._given[key] = value
        self._deleted.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._note(key)
        self._given.pop(key, None)
        self._deleted.add(key)

    def __contains__(self, key: object) -> bool:
        if key in self._given:
            return True
        if not isinstance(key, str) or key in self._deleted:
            return False
        return self._cache.text(key, self._stored) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __repr__(self) -> str:
        return f"<state of {self._place}, {len(self._given)} keys in use>"

    def changes(self) -> dict[str, str | None]:
        """What is to be written: the new texts, None for keys that are to go."""
        texts = {key: self._encoded(key, value) for key, value in self._given.items()}
        changes: dict[str, str | None] = dict.fromkeys(self._deleted)
        changes.update(texts)
        return {key: text for key, text in changes.items() if self._cache.differs(key, text)}

    def watch(self) -> None:
        """From here on `take_back` can undo, until `keep`."""
        self._before = {}

    def keep(self) -> None:
        self._before = None

    def take_back(self) -> None:
        for key, (how, text) in (self._before or {}).items():
            self._given.pop(key, None)
            self._deleted.discard(key)
            if how == "deleted":
                self._deleted.add(key)
            elif text is not None:
                self._given[key] = json.loads(text)
        self._before = None

    def _note(self, key: str) -> None:
        if self._before is None or key in self._before:
            return
        if key in self._given:
            self._before[key] = ("given", self._encoded(key, self._given[key]))
        else:
            self._before[key] = ("deleted" if key in self._deleted else "untouched", None)

    def _keys(self) -> list[str]:
        stored = self._cache.all_texts(self._stored)
        kept = [key for key in stored if key not in self._deleted]
        return kept + [key for key in self._given if key not in stored]

    def _encoded(self, key: str, value: JSON) -> str:
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(
                f"the state {key!r} of {self._place} cannot be written as JSON: {error}",
                hint="keep numbers, strings, lists and dictionaries of them",
            ) from error


def _check_key(key: object, place: str) -> None:
    if not isinstance(key, str):
        raise BadInput(f"a key of the state of {place} must be a string, not {key!r}")
    try:
        key.encode()
    except UnicodeEncodeError:
        encodable = False
    else:
        encodable = "\0" not in key
    if not encodable:
        raise BadInput(f"{key!r} cannot be a key of the state of {place}: databases refuse it")
