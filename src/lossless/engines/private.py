"""Files that hold records and passwords: for the account that writes them, whatever its umask."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lossless.errors import BadInput, LosslessError, Unavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FAILING = (errno.EIO, *_FULL)

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Creates the folder, or takes from other accounts what an earlier version allowed them."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    folder.chmod(FOLDER_MODE)


def write_private(file: Path, text: str) -> None:
    with open(file, "w", opener=open_privately) as output:
        os.fchmod(output.fileno(), FILE_MODE)
        output.write(text)


def unwritable(place: Path, error: OSError) -> LosslessError:
    """What to raise when a folder or file of the user's cannot be written to."""
    if error.errno in _FULL:
        return Unavailable(f"no space left in {place}", hint="make room, or choose another folder")
    reason = f"{place} cannot be written to: {error.strerror or error}"
    if error.errno in _FAILING:
        return Unavailable(reason)
    return BadInput(reason, hint="choose another folder")


def open_privately(path: str, flags: int) -> int:
    """For `open(opener=…)`."""
    return os.open(path, flags, FILE_MODE)
