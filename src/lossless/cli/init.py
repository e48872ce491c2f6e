"""`lossless init`: writes a commented contract that works without changes."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

import click

from lossless.cli.console import stdout
from lossless.contract.load import FILE_NAME
from lossless.contract.place import shown
from lossless.engines.private import unwritable
from lossless.errors import BadInput

SCHEMA = Path("schemas") / "orders.json"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(path: Path, force: bool) -> None:
    """Write a commented lossless.toml and an example schema.

    PATH is a folder, which is created if it does not exist, or a file name that ends in .toml.
    """
    contract = path if path.suffix == ".toml" and not path.is_dir() else path / FILE_NAME
    schema = contract.parent / SCHEMA
    there = [shown(file) for file in (contract, schema) if file.exists()]
    if there and not force:
        raise BadInput(
            f"{' and '.join(there)} already exist{'s' if len(there) == 1 else ''}",
            hint="overwrite with --force, or choose another folder: lossless init PATH",
        )
    # The schema first, so that a contract that exists is usable.
    _write(schema, SCHEMA.as_posix())
    _write(contract, FILE_NAME)
    stdout.print(f"wrote {shown(contract)} and {shown(schema)}", markup=False)
    folder = "" if contract.parent == Path() else f"cd {shlex.quote(shown(contract.parent))}\n  "
    named = "" if contract.name == FILE_NAME else f" --contract {shlex.quote(contract.name)}"
    stdout.print(
        "Review the file, then run:\n"
        f"  {folder}lossless doctor{named}\n"
        f"  lossless up --detach{named}\n"
        f"  lossless run orders{named}",
        markup=False,
    )


def _write(target: Path, template: str) -> None:
    text = files("lossless.contract").joinpath("template", template).read_text(encoding="utf-8")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(Path(shown(target)), error) from error
