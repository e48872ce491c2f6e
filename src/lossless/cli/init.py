"""`lossless init`: a commented contract that works as it stands."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path

import click

from lossless.cli.console import stdout
from lossless.contract.load import FILE_NAME
from lossless.contract.place import shown
from lossless.errors import BadInput

SCHEMA = Path("schemas") / "orders.json"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Replace the files that are there.")
def command(path: Path, force: bool) -> None:
    """Write a commented lossless.toml, and the schema it names, to start from.

    PATH is a folder (made if it is missing) or the name of the contract, ending in .toml.
    """
    contract = path if path.suffix == ".toml" and not path.is_dir() else path / FILE_NAME
    schema = contract.parent / SCHEMA
    there = [shown(file) for file in (contract, schema) if file.exists()]
    if there and not force:
        raise BadInput(
            f"{' and '.join(there)} {'is' if len(there) == 1 else 'are'} there already",
            hint="--force replaces; or name another folder: lossless init PATH",
        )
    # The schema first: a contract that is there can be used.
    _write(schema, SCHEMA.as_posix())
    _write(contract, FILE_NAME)
    stdout.print(f"wrote {shown(contract)} and {shown(schema)}", markup=False)
    folder = "" if contract.parent == Path() else f"cd {shlex.quote(shown(contract.parent))}\n  "
    named = "" if contract.name == FILE_NAME else f" --contract {shlex.quote(contract.name)}"
    stdout.print(
        "next, after a look at the file:\n"
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
        raise BadInput(
            f"{shown(target)} cannot be written: {error.strerror}",
            hint="name a folder that can be: lossless init PATH",
        ) from error
