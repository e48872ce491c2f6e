"""What becomes of a record whose handler raised: again, retry topics, dead letters and back.

policies.py    what to do with a failure, pure: again later, forward, stop
letters.py     headers of a forwarded record, as Spring writes them; letters of every family
key_order.py   which keys wait in a retry topic, so that their later records go behind them
reading.py     all letters of a topic, up to its end
replayed.py    which letters went back, in 4,096 bytes of commit metadata
replaying.py   letters go back to where they came from, each once
"""

from lossless.client.retrying.forwarding import is_of_another_group
from lossless.client.retrying.key_order import KeyOrder
from lossless.client.retrying.letters import DeadLetter, read_letter
from lossless.client.retrying.policies import (
    Again,
    Backoff,
    DeadLetters,
    Decision,
    Failure,
    Forward,
    InPlace,
    RetryPolicy,
    RetryTopics,
    Stop,
)

__all__ = [
    "Again",
    "Backoff",
    "DeadLetter",
    "DeadLetters",
    "Decision",
    "Failure",
    "Forward",
    "InPlace",
    "KeyOrder",
    "RetryPolicy",
    "RetryTopics",
    "Stop",
    "is_of_another_group",
    "read_letter",
]
