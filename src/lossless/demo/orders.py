"""The demo's records: numbered orders of about 200 bytes of JSON each.

The number of an order identifies it from the producer's `send` to the row in the table, and
determines all its bytes.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
_CUSTOMERS = 5_000
_PRODUCTS = ("tea, green", "tea, black", "coffee, ground", "coffee, whole beans", "cocoa", "sugar")

# JSON Schema of an order, for the pipeline; SCHEMA_DDL is the same for the careless job.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Order",
    "type": "object",
    "properties": {
        "order_id": {"type": "integer"},
        "customer": {"type": "string"},
        "product": {"type": "string"},
        "quantity": {"type": "integer"},
        "amount": {"type": "number", "multipleOf": 0.01},
        "currency": {"type": "string"},
        "created_at": {"type": "string", "format": "date-time"},
        "deliver_to": {"type": "string"},
    },
    "required": ["order_id", "customer", "amount", "created_at"],
}
SCHEMA_DDL = (
    "order_id BIGINT, customer STRING, product STRING, quantity BIGINT, amount DECIMAL(18,2), "
    "currency STRING, created_at TIMESTAMP, deliver_to STRING"
)


def order_key(number: int) -> bytes:
    return str(number).encode()


def order_value(number: int) -> bytes:
    customer = number % _CUSTOMERS
    quantity = 1 + number % 9
    return json.dumps(
        {
            "order_id": number,
            "customer": f"customer-{customer:05d}",
            "product": _PRODUCTS[number % len(_PRODUCTS)],
            "quantity": quantity,
            "amount": round(quantity * (2.5 + customer % 40), 2),
            "currency": "EUR",
            "created_at": (_FIRST + timedelta(seconds=number)).isoformat(),
            "deliver_to": f"{customer % 200 + 1} Harbour Street",
        },
        separators=(",", ":"),
    ).encode()


def order_number(key: str) -> int:
    return int(key)
