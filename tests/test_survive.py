"""benchmarks/survive.py, each of its trials once, and that it would say so if something did not survive."""

import errno
import io
import logging
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from snakemake_interface_logger_plugins.common import LogEvent

from worked_attention.cases.strict_yaml import Problem, Problems
from worked_attention.files.jobs import logged
from worked_attention.terminal import Terminal

sys.path.insert(0, str(ROOT / "benchmarks"))

import survive  # noqa: E402


def test_the_short_form(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Without the trial of archives, which are damaged one by one in test_archive.py."""
    names = [name for name in survive.TRIALS if name != "archives"]
    told = survive.survive(tmp_path, names, seed=3, rounds=1, minutes=0)
    assert capsys.readouterr().out == ""
    assert {name: row["findings"] for name, row in told.items()} == dict.fromkeys(names, 0)
    assert all(row["tries"] == 1 or (name in ("full", "read_only") and "refused" in row["left_out"]) for name, row in told.items())


def failing(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyError("heads"), Problems([])])
def test_a_reader_that_does_not_say_what_is_wrong_is_a_finding(error: Exception) -> None:
    assert len(list(survive.refused(lambda: failing(error)))) == 1
    assert list(survive.refused(lambda: failing(Problems([Problem("a.yaml", 1, None, None, "one line")])))) == []


@pytest.mark.parametrize(
    ("returncode", "said"), [(0, "No space left"), (1, "Traceback (most recent call last):\nOSError: No space left"), (1, "Killed")]
)
def test_a_run_that_does_not_say_what_is_wrong_is_a_finding(returncode: int, said: str) -> None:
    assert list(survive.unclear(subprocess.CompletedProcess([], returncode, "", said), "No space left")) != []
    assert list(survive.unclear(subprocess.CompletedProcess([], 1, "", "Error: No space left"), "No space left")) == []


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_other_bytes_are_a_finding(tmp_path: Path, damage: str) -> None:
    whole = survive.Whole(tmp_path)
    whole.project = tmp_path / "whole"
    (whole.project / "results").mkdir(parents=True)
    (whole.project / "results" / "weights.npy").write_bytes(b"0")
    other = Path(shutil.copytree(whole.project, tmp_path / "other"))
    assert list(whole.difference(other)) == []
    path = other / "results" / "weights.npy"
    path.unlink() if damage == "missing" else (other / "results" / "x" if damage == "added" else path).write_bytes(b"1")
    assert len(list(whole.difference(other))) == 1


def test_damage_is_damage() -> None:
    draw, data = random.Random(1), bytes(range(200))
    assert sum(survive.damaged(draw, data) != data for _ in range(100)) > 80
    text = (ROOT / "config" / "suites" / "handworked.yaml").read_text("utf-8")
    assert sum(survive.rewritten(draw, text) != text for _ in range(100)) > 80


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    line = "Error: results/ cannot be written: No space left on device\n"
    with pytest.raises(SystemExit, match="1"), logged("/dev/full"):  # where the log itself cannot be written
        print("something", file=sys.stderr)
    assert capsys.readouterr().err == line
    with pytest.raises(SystemExit, match="1"), logged(str(tmp_path / "log")):
        failing(OSError(errno.ENOSPC, "No space left on device"))
    assert (tmp_path / "log").read_text("utf-8") == line
    with pytest.raises(SystemExit, match="1"), logged(str(tmp_path / "log")):  # a fault of ours is no full disk
        failing(OSError(errno.ENOENT, "No such file"))
    assert "Traceback" in (tmp_path / "log").read_text("utf-8")


def test_a_lack_of_memory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="1"), logged(str(tmp_path / "log")):
        np.empty(2**50)
    line = (tmp_path / "log").read_text("utf-8")
    assert re.fullmatch(r"Error: memory is short: Unable to allocate 8\.00 PiB .*\n", line)


@pytest.mark.parametrize(
    "number, words, told",
    [
        (
            errno.ENOSPC,
            "No space left on device: 'results/a/.snakemake_timestamp'",
            "Error: results/ cannot be written: No space left on device",
        ),
        (errno.EROFS, "Read-only file system: '/x/.snakemake/locks'", "Error: .snakemake/ cannot be written: Read-only file system"),
        (errno.ENOENT, "No such file or directory: 'results/a'", ""),  # no full disk
    ],
)
def test_a_full_disk_is_one_line_where_snakemake_meets_it(number: int, words: str, told: str) -> None:
    """Also after a job that failed, for Snakemake then ends without telling of it."""
    terminal = Terminal(io.StringIO(), str)
    terminal.failed.append(("weights", [], "", []))
    text = f"Traceback (most recent call last):\n\n  File x\n\nOSError: [Errno {number}] {words}\n"
    record = logging.makeLogRecord({"levelno": logging.ERROR, "msg": text, "event": LogEvent.ERROR})
    assert terminal.filter(record)
    assert record.msg == (told or text)
    assert not terminal.filter(logging.makeLogRecord({"levelno": logging.ERROR, "msg": "At least one job", "event": LogEvent.ERROR}))
