"""Connection settings for PostgreSQL, shared by pipelines and stores."""

from __future__ import annotations

import re

# A dead connection is closed within about a minute, not after the two hours that operating systems
# wait. The user's DSN takes precedence.
CONNECTION_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "lossless",
}

# libpq gives no SQLSTATE for a refused connection: only the message distinguishes a user's mistake
# from an outage. A message in another language is treated as an outage and retried.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry"
    r"|(?:database|role) \"[^\"]*\" does not exist|authentication failed for user"
    r"|is not permitted to log in|permission denied for database"
)


def is_refusal(message: str) -> bool:
    """Whether a connection error without SQLSTATE is a refusal of this user, not an outage."""
    return _REFUSED.search(message) is not None
