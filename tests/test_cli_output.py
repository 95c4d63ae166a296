"""The command line: files are written whole or not at all; answers that nobody takes; progress."""

from __future__ import annotations

import io
import os
import sys
import threading

import pytest

from cli_runs import product, run
from fuse_epilogue import _files, _progress
from fuse_epilogue._progress import Progress
from fuse_epilogue.cli import output

__all__ = ["product"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "out.json"
    _files.write(file, "before")
    before = file.stat().st_mode

    class Killed(BaseException):
        pass

    def dies(*_, **__):
        raise Killed

    monkeypatch.setattr(_files.os, "fdopen", dies)
    with pytest.raises(Killed):
        _files.write(file, "after")
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]
    assert file.stat().st_mode == before


def test_what_is_no_file_is_written_to_and_of_a_link_the_file_behind_it(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    _files.write(pipe, "through")
    reader.join()
    assert read == ["through"] and pipe.is_fifo()
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("before")
    link.symlink_to(file)
    _files.write(link, "after")
    assert link.is_symlink() and file.read_text() == "after"


def test_a_pipe_without_a_path_is_written_to():
    """As a shell's ``>(command)`` is one."""
    reading, writing = os.pipe()
    path = f"/dev/fd/{writing}"
    _files.try_to_write(path)
    _files.write(path, "through")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through"


# ---- Answers that nobody takes -------------------------------------------------------------------


def test_a_reader_may_stop_at_any_time(monkeypatch):
    pipes = []
    for name in ("stdout", "stderr"):
        reading, writing = os.pipe()
        os.close(reading)
        pipes.append(os.fdopen(writing, "w"))
        monkeypatch.setattr(sys, name, pipes[-1])
    assert output.Answer("text", {}, output.REFUSED).show(as_json=False) == output.REFUSED
    output.note("nobody reads it")
    for pipe in pipes:
        pipe.close()  # flushes, as Python does at its end


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_named(product, capsys, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, noted = run(capsys, "explain", product)
    assert code == output.REFUSED and "/dev/full cannot be written: No space left" in noted


def test_standard_output_may_be_closed(product, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    code, _, noted = run(capsys, "explain", product)
    assert code == output.REFUSED and "standard output is closed" in noted


def test_standard_error_may_be_closed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert run(capsys, "explain", "missing.json")[:2] == (output.WRONG, "")


def test_a_terminal_need_not_know_all_letters(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    output.Answer("\u03bb: fused", {}).show(as_json=False)
    assert raw.getvalue() == b"\\u03bb: fused\n"


# ---- Progress ------------------------------------------------------------------------------------


def test_progress_is_drawn_on_terminals(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    progress = Progress()
    progress.show("main", 1, 2, "5.0 us" + "!" * 80)
    progress.show("main", 2, 2)
    first, second = capsys.readouterr().err.removeprefix("\r").split("\r")
    assert first.startswith(f"main: [{'#' * 15}{' ' * 15}] 1/2 5.0 us!") and len(first) == 59
    assert second.rstrip(" \n") == f"main: [{'#' * 30}] 2/2" and second.endswith("\n")


def test_progress_off_a_terminal_is_a_line_now_and_then(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    progress = Progress()
    for number, at in enumerate((100, 101, 104, 106, 108, 700)):
        now[0] = at
        progress.show("main", number, 8, "5.0 us")
    # One at 106 s and one at 700 s; 3 steps took 6 s, 5 steps took 600 s.
    assert capsys.readouterr().err.splitlines() == [
        "main: 3 of 8 (10 s left) 5.0 us",
        "main: 5 of 8 (6 min left) 5.0 us",
    ]
