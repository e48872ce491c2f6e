"""Arguments of `lossless.cluster` of a wrong type are refused by name, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

import lossless
from lossless.errors import BadInput


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"brokers": "3"}, "brokers='3' is not a whole number"),
        ({"brokers": 2.5}, "brokers=2.5 is not a whole number"),
        ({"brokers": True}, "brokers=True is not a whole number"),
        ({"controllers": None}, "controllers=None is not a whole number"),
        ({"racks": "abc"}, "racks='abc' is not a list of names"),
        ({"racks": 3}, "racks=3 is not a list of names"),
        ({"config": "x"}, "config='x' is not a mapping of settings of brokers"),
        ({"data": 5}, "data=5 is not a folder"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_name(argument: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused, lossless.cluster(**argument):
        pass
    assert refused.value.what == said
    assert refused.value.hint
