"""How functions of the application are called: what they raise never ends a thread of ours."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("lossless.client.producer")


def called_well(function: Callable[..., object], *arguments: Any, name: str) -> bool:
    """Calls a function of the application; logs what it raises. Whether it raised nothing.

    sys.exit and Ctrl-C leave the main thread, as they should. In any other thread they would end
    only that thread, and with it the service that it does for others.
    """
    try:
        function(*arguments)
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and not isinstance(error, Exception):
            raise
        logger.exception("%s raised", name)
        return False
    return True
