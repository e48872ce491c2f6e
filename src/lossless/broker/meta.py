"""Which cluster a disk belongs to. A node that is given another's disk must not touch it."""

from __future__ import annotations

from pathlib import Path

from lossless.core.settings.kinds import InvalidSetting

META = "meta.properties"


def write_meta(folder: Path, cluster_id: str) -> None:
    """Lays a disk out for a node; one that is laid out already is left alone."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    file = folder / META
    if not file.exists():
        file.touch(0o600)
        file.write_text(f"version=1\ncluster.id={cluster_id}\n")


def read_cluster_id(folder: Path) -> str:
    try:
        lines = (folder / META).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]
    except (OSError, KeyError) as error:
        raise InvalidSetting(f"{folder / META} does not say which cluster this is") from error
