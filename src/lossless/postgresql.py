"""How this package connects to PostgreSQL, whoever does: pipelines and stores alike."""

from __future__ import annotations

import re

# A connection that nobody answers on is given up within a minute or so, not after the two hours
# that operating systems wait. What the DSN says comes first.
CONNECTION_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "lossless",
}

# libpq gives no SQLSTATE for a connection that was refused: only the words tell a user's mistake
# from an outage. Words in another language are taken for an outage, which is retried.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r"|(?:database|role) \"[^\"]*\" does not exist|authentication failed for user"
    r"|is not permitted to log in|permission denied for database"
)


def is_refusal(words: str) -> bool:
    """Whether a server that gave no SQLSTATE does not want this user, rather than being away."""
    return _REFUSED.search(words) is not None
