"""Progress of a fetch on stderr: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

LINE_EVERY_S = 5


class Progress:
    """Shows the progress of fetching one set of jars."""

    def __init__(self, name: str, count: int, megabytes: float) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._name = name
        self._count = count
        self._megabytes = megabytes
        self._line_at = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, *, found: int, fetched: int, size: int) -> None:
        """Shows the current counts. Ivy first resolves all jars, then downloads them."""
        if fetched == 0 and size == 0:
            text = f"{found} of {self._count} found"
        else:
            text = f"{fetched} of {self._count} jars, {size / 1e6:.1f} of {self._megabytes:.1f} MB"
        if self._console.is_terminal:
            if self._bar is None:
                self._bar = Bar(
                    TextColumn("fetching the {task.fields[set]} jars"),
                    BarColumn(),
                    TextColumn("{task.fields[text]}"),
                    TimeElapsedColumn(),
                    console=self._console,
                    transient=True,
                )
                self._bar.start()
                self._task = self._bar.add_task("", total=self._count, set=self._name, text=text)
            assert self._task is not None
            self._bar.update(self._task, completed=fetched, text=text)
        elif time.monotonic() - self._line_at > LINE_EVERY_S:
            self._line_at = time.monotonic()
            self._console.print(f"fetching the {self._name} jars: {text}")

    def done(self, folder: Path) -> None:
        """Prints that the set was fetched."""
        self._console.print(
            f"fetched the {self._name} jars ({self._count}, {self._megabytes:.1f} MB) into {folder}"
        )
