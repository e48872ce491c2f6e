"""Jars are what they should be or they are not used; nothing half-fetched is ever trusted."""

from __future__ import annotations

import fcntl
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from maven_mirror import Mirror, serving

from lossless.errors import Unavailable
from lossless.jars import MEGABYTES, folder, jars, present
from lossless.jars.checksums import expected
from lossless.jars.fetch import ivy_file
from lossless.jars.java import java

FETCH = [sys.executable, "-c", "from lossless.jars import jars; print(jars('jdbc')[0])"]


@pytest.fixture(scope="session")
def driver() -> bytes:
    """The real file of the smallest set."""
    return jars("jdbc")[0].read_bytes()


@pytest.fixture
def mirror(driver: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """An empty cache, and a repository of our own to fill it from."""
    monkeypatch.delenv("LOSSLESS_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(driver) as mirror:
        monkeypatch.setenv("LOSSLESS_IVY_SETTINGS", str(mirror.settings(tmp_path)))
        yield mirror


def left_behind() -> list[str]:
    return sorted(path.name for path in folder("jdbc").parent.glob("*[!k]"))


def test_a_set_is_fetched_once_and_is_there_offline_afterwards(
    mirror: Mirror,
    driver: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert not present("jdbc")
    assert jars("jdbc")[0].read_bytes() == driver
    assert "fetched the jdbc jars (1, 1.1 MB)" in capfd.readouterr().err
    assert present("jdbc")
    monkeypatch.setenv("PATH", "")  # neither Java nor a network is needed any more
    assert [path.name for path in jars("jdbc")] == ["postgresql-42.7.4.jar"]
    assert mirror.jars_served == 1


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_not_kept(mirror: Mirror) -> None:
    mirror.jar = mirror.jar[:-1] + b"!"
    with pytest.raises(
        Unavailable, match=r"failed verification: postgresql-42.7.4.jar has the wrong"
    ):
        jars("jdbc")
    assert not present("jdbc")
    assert left_behind() == []


def test_a_jar_that_was_damaged_in_the_cache_is_fetched_again(
    mirror: Mirror, driver: bytes
) -> None:
    place = jars("jdbc")[0]
    place.write_bytes(b"cut short")
    assert jars("jdbc")[0].read_bytes() == driver
    assert mirror.jars_served == 2


def test_a_fetch_killed_half_way_leaves_nothing_that_is_trusted(
    mirror: Mirror, driver: bytes
) -> None:
    mirror.go_on.clear()
    with subprocess.Popen(FETCH, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as fetching:
        assert mirror.half_served.wait(60)
        fetching.kill()
    assert not present("jdbc")
    # Its Ivy lives on, and keeps the next fetch waiting until it is through.
    with (
        folder("jdbc").with_name(f"{folder('jdbc').name}.lock").open() as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    mirror.go_on.set()
    assert jars("jdbc")[0].read_bytes() == driver
    assert left_behind() == [folder("jdbc").name]


def test_ctrl_c_during_a_fetch_clears_everything_away(mirror: Mirror) -> None:
    mirror.go_on.clear()
    with subprocess.Popen(FETCH, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as fetching:
        assert mirror.half_served.wait(60)
        fetching.send_signal(signal.SIGINT)
        assert fetching.wait(30) == -signal.SIGINT
    assert left_behind() == []


def test_two_processes_at_once_fetch_once_and_both_succeed(mirror: Mirror) -> None:
    mirror.go_on.clear()
    with (
        subprocess.Popen(FETCH, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(FETCH, stdout=subprocess.PIPE, text=True) as second,
    ):
        assert mirror.half_served.wait(60)
        mirror.go_on.set()
        answers = {first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]}
    assert first.returncode == second.returncode == 0
    assert answers == {f"{folder('jdbc') / 'postgresql-42.7.4.jar'}\n"}
    assert mirror.jars_served == 1


def test_no_network_is_said_in_one_message_that_tells_what_to_do(
    mirror: Mirror, tmp_path: Path
) -> None:
    mirror.port = 1
    mirror.settings(tmp_path)
    with pytest.raises(Unavailable, match="jdbc jars could not be fetched") as raised:
        jars("jdbc")
    assert "LOSSLESS_IVY_SETTINGS" in str(raised.value)
    assert "LOSSLESS_JARS" in str(raised.value)
    assert left_behind() == []


def test_a_cache_that_cannot_be_written_to_is_named(
    mirror: Mirror,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match=r"cannot be stored in .*file"):
        jars("jdbc")


def test_a_folder_of_jars_serves_sites_without_a_network(
    mirror: Mirror, driver: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOSSLESS_JARS", str(tmp_path))
    (tmp_path / "jdbc").mkdir()
    with pytest.raises(Unavailable, match=r"postgresql-42.7.4.jar is missing"):
        jars("jdbc")
    (tmp_path / "jdbc" / "postgresql-42.7.4.jar").write_bytes(driver)
    (tmp_path / "jdbc" / "something-else.jar").write_bytes(b"not ours")
    assert present("jdbc")
    assert jars("jdbc") == [tmp_path / "jdbc" / "postgresql-42.7.4.jar"]
    (tmp_path / "jdbc" / "postgresql-42.7.4.jar").write_bytes(driver[:-1])
    with pytest.raises(Unavailable, match="has the wrong checksum"):
        jars("jdbc")
    assert mirror.jars_served == 0


def test_without_pyspark_the_message_names_both_ways_out(
    mirror: Mirror,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Unavailable, match="PySpark") as raised:
        jars("jdbc")
    assert "pip install 'lossless[spark]'" in str(raised.value)
    assert "LOSSLESS_JARS" in str(raised.value)


def test_no_java_an_old_java_and_a_wrong_java_home_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java().name == "java"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="Java is not installed") as raised:
        java()
    assert "install Java 17" in str(raised.value)
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=r"Java 8 .* is too old"):
        java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match=r"JAVA_HOME=.* contains no Java"):
        java()


@pytest.mark.parametrize("name", sorted(MEGABYTES))
def test_every_coordinate_is_pinned_alone_and_has_its_checksum(name: str) -> None:
    text = ivy_file(name).read_text()
    coordinates = re.findall(r'<dependency org="\S+" name="(\S+)" rev="(\S+)" (.*)/>', text)
    assert {f"{module}-{revision}.jar" for module, revision, _ in coordinates} == set(
        expected(name)
    )
    assert {conf for _, _, conf in coordinates} == {'conf="default->master"'}
    assert text.count("<dependency ") == len(coordinates)


@pytest.mark.parametrize("name", sorted(MEGABYTES))
def test_the_size_that_is_announced_is_the_size_of_the_files(name: str) -> None:
    assert sum(path.stat().st_size for path in jars(name)) / 1e6 == pytest.approx(
        MEGABYTES[name], abs=0.05
    )
