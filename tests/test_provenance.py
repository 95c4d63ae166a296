"""Results name the commit they were measured at and what they depend on; stale ones are listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import provenance  # noqa: E402

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_names_its_commit_and_what_it_depends_on(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", data["commit"])
    assert data["depends_on"]
    for each in data["depends_on"]:
        assert (ROOT / each).exists(), each


@pytest.mark.parametrize("name", provenance.DEPENDS_ON)
def test_every_row_of_the_table_names_what_is_there(name: str) -> None:
    for each in provenance.DEPENDS_ON[name]:
        assert (ROOT / each).exists(), each


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a result that depends on "code", and another folder."""
    git(tmp_path, "init", "--quiet")
    for folder in ("code", "other", "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "code" / "a.py").write_text("a = 1\n")
    (tmp_path / "other" / "b.py").write_text("b = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "measured")
    record(tmp_path, {"commit": git(tmp_path, "rev-parse", "HEAD"), "depends_on": ["code"]})
    return tmp_path


def record(root: Path, data: dict[str, object]) -> None:
    (root / "benchmarks" / "results" / "times.json").write_text(json.dumps(data))


def names(root: Path) -> list[str]:
    return [each.why for each in provenance.stale(root)]


def test_what_has_not_changed_is_not_listed(repository: Path) -> None:
    assert names(repository) == []
    (repository / "other" / "b.py").write_text("b = 2\n")
    git(repository, "commit", "--quiet", "--all", "-m", "other")
    assert names(repository) == []


def test_what_has_changed_is_listed(repository: Path) -> None:
    (repository / "code" / "a.py").write_text("a = 2\n")
    (before_commit,) = names(repository)
    assert before_commit.startswith("0 commits since") and before_commit.endswith(": code")
    git(repository, "commit", "--quiet", "--all", "-m", "code")
    (why,) = names(repository)
    assert why.startswith("1 commit since") and why.endswith(": code")
    (repository / "code" / "a.py").write_text("a = 1\n")
    git(repository, "commit", "--quiet", "--all", "-m", "back")
    assert names(repository) == []  # the content is what was measured


@pytest.mark.parametrize(
    "data, why",
    [
        ({"commit": "0" * 40, "depends_on": ["code"]}, "is not in this repository"),
        ({"depends_on": ["code"]}, "is not in this repository"),
        ({"commit": "0" * 40}, "does not name what it depends on"),
    ],
)
def test_results_of_which_nothing_can_be_said_are_listed(
    repository: Path, data: dict[str, object], why: str
) -> None:
    record(repository, data)
    (found,) = names(repository)
    assert why in found


def test_the_commit_of_a_tree_with_changes_says_so(repository: Path) -> None:
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "results")
    head = git(repository, "rev-parse", "HEAD")
    assert provenance.commit(repository) == head
    record(repository, {"commit": head, "depends_on": ["other"]})
    assert provenance.commit(repository) == head, "other results are not what is measured"
    (repository / "code" / "a.py").write_text("a = 3\n")
    assert provenance.commit(repository) == f"{head}-dirty"
    record(repository, {"commit": f"{head}-dirty", "depends_on": ["other"]})
    assert names(repository) == []


def test_without_a_repository_the_commit_is_unknown(tmp_path: Path) -> None:
    assert provenance.commit(tmp_path) == "unknown"
