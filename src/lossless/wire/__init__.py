"""Kafka's requests and answers: one file per API, kio as the codec.

Where hypothesis is installed kio loads it, to register strategies for its types. That takes a third
of a second and leaves a folder behind wherever a command is run, so kio is loaded here first, and
finds none.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
