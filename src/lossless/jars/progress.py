"""Progress of a fetch on stderr: a bar on a terminal, a line now and then otherwise."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

LINE_EVERY_S = 5


class Progress:
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
        """Ivy looks every jar up first and downloads afterwards."""
        if fetched == 0 and size == 0:
            said = f"{found} of {self._count} found"
        else:
            said = f"{fetched} of {self._count} jars, {size / 1e6:.1f} of {self._megabytes:.1f} MB"
        if self._console.is_terminal:
            if self._bar is None:
                self._bar = Bar(
                    TextColumn("fetching the {task.fields[set]} jars"),
                    BarColumn(),
                    TextColumn("{task.fields[said]}"),
                    TimeElapsedColumn(),
                    console=self._console,
                    transient=True,
                )
                self._bar.start()
                self._task = self._bar.add_task("", total=self._count, set=self._name, said=said)
            assert self._task is not None
            self._bar.update(self._task, completed=fetched, said=said)
        elif time.monotonic() - self._line_at > LINE_EVERY_S:
            self._line_at = time.monotonic()
            self._console.print(f"fetching the {self._name} jars: {said}")

    def done(self, folder: Path) -> None:
        self._console.print(
            f"fetched the {self._name} jars ({self._count}, {self._megabytes:.1f} MB) into {folder}"
        )
