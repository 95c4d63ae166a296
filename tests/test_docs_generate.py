"""The pages that are generated say what the code and the committed results say."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import fuse_epilogue
from fuse_epilogue import cli
from fuse_epilogue.neuron.checker import RULES
from fuse_epilogue.neuron.costs import TABLE
from fuse_epilogue.neuron.isa import INSTRUCTIONS
from fuse_epilogue.neuron.machine import MACHINES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import generate  # noqa: E402
from generate import (  # noqa: E402
    algebra,
    benchmarks,
    changelog,
    commands,
    links,
    pairs,
    pictures,
    reference,
    references,
    refusals,
    results,
    rst,
    trainium,
)

# Pages are Python's work: what they ask of the library has tests of its own.
pytestmark = pytest.mark.slow

MODULES = sorted(path.stem for path in (ROOT / "docs" / "generate").glob("[a-z]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_generators(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"generate.{module}"))
    assert not results.failed


# ---- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", fuse_epilogue.REFUSALS)
def test_every_refusal_has_a_cause_and_a_cure(code: str) -> None:
    meaning = fuse_epilogue.REFUSALS[code]
    cause, cure = refusals.cause_and_cure(meaning)
    assert cure[0].isupper() and cure.endswith(".")
    # Nothing is lost between them but the mark where the text is cut.
    letters = re.sub(r"\W", "", meaning).lower()
    assert re.sub(r"\W", "", cause + cure).lower() == letters
    page = refusals.pages()["refusals"]
    assert f".. _refusal-{code}:" in page
    # Beside each code is what is refused, and what is fused instead; one is not used any more.
    entry = page.partition(f".. _refusal-{code}:")[2].partition("\n.. _refusal-")[0]
    assert ("code-block:: diff" in entry) == (code != "accumulator-type")


def test_of_two_programs_one_is_refused_and_the_other_fused() -> None:
    for code, (refused, fused) in pairs.pairs().items():
        assert pairs.code_of(refused) == code
        fused.run()


# ---- The algebra ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("monoid", "function", "dtype", "how", "asked", "becomes"),
    [
        # s + c: one more term of the sum
        ("sum", "x + c", "float32", "absorbed", False, "sum"),
        # c - x of unsigned integers may pass below 0, which TVM takes never to happen
        ("sum", "c - x", "uint32", "tail", False, "sum"),
        # (t0 + t1) * c = t0 * c + t1 * c
        ("sum", "x * c", "float32", "distributed", True, "sum"),
        # a decreasing function turns the greatest into the least
        ("max", "c - x", "float32", "distributed", True, "min"),
        # not (a and b) = not a or not b
        ("logical and", "not x", "bool", "distributed", True, "logical or"),
        ("bit-wise xor", "x ^ c", "int32", "absorbed", False, "bit-wise xor"),
        ("product", "x + c", "float32", "tail", False, "product"),
        # log(exp(t0) + exp(t1)) + 3 = log(exp(t0 + 3) + exp(t1 + 3))
        ("logaddexp", "x + 3.0", "float32", "distributed", True, "logaddexp"),
    ],
)
def test_the_algebra_is_asked(
    monoid: str, function: str, dtype: str, how: str, asked: bool, becomes: str
) -> None:
    assert algebra.verdict(monoid, function, dtype) == algebra.Verdict(how, asked, becomes)


# ---- Trainium, the command line, the reference ---------------------------------------------------


def test_pages_of_trainium_hold_all_rows() -> None:
    pages = trainium.pages()
    for name in INSTRUCTIONS:
        assert f"\n{name}\n-" in pages["trainium/instructions"]
    for row in TABLE:
        assert f"{row.per_element:g}\n" in pages["trainium/instructions"]
    for rule in RULES:
        assert f"``{rule.name}``" in pages["trainium/rules"]
    for each in MACHINES.values():
        assert f"{each.sbuf_bytes:,}" in pages["trainium/machines"]


def test_the_changelog_is_whole() -> None:
    page = changelog.pages()["changelog"]
    words = (
        changelog.CHANGELOG.read_text(encoding="utf-8").replace("`", "").replace("#", "").split()
    )
    assert [word for word in page.replace("`", "").split() if set(word) - set("=-~")] == [
        word for word in words if set(word) - set("=-~")
    ]
    # Code is code: no backtick stands alone.
    assert not re.search(r"(?<!`)`(?!`)", page)


def test_every_command_is_on_its_page() -> None:
    page = commands.pages()["commands"]
    for name in cli.COMMANDS:
        assert f"usage: python -m fuse_epilogue {name}" in page


def test_every_package_has_a_page() -> None:
    pages = reference.pages()
    for package in reference.PACKAGES:
        page = pages[f"reference/{package}"]
        for name in reference.shown(package):
            # A constant stands behind ".. module::", which names the package.
            entry = rf"^\.\. (py:data:: |[\w:]+:: {re.escape(package)}\.){name}$"
            assert re.search(entry, page, re.M), name


def test_names_in_docstrings_are_found_where_a_reader_would_look() -> None:
    found = references.find("check", "fuse_epilogue.verify", None)
    assert references.public_name(found) == "fuse_epilogue.verify.check"
    # Of another module of the package, and of the module that a class comes from.
    assert references.find(".backends.BACKENDS", "fuse_epilogue.planner", "Plan") is not None
    nothing = references.find("no_such_name", "fuse_epilogue.planner", "Plan")
    assert references.public_name(nothing) is None
    assert nothing is references.find("nor_this", "fuse_epilogue", None)


# ---- Benchmarks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(benchmarks.RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_every_committed_result_has_a_page(path: Path) -> None:
    pages = benchmarks.pages()
    assert f"    {path.stem}\n" in pages["benchmarks/index"]
    page = pages[f"benchmarks/{path.stem}"]
    assert f"{path.name}>`" in page
    assert ".. list-table::" in page
    # None is shown as it is in the file, for want of a page of its own.
    assert path.stem in results.SHOWN
    # Times and predictions begin with a chart; verdicts are counts.
    counts = {*benchmarks._GROUPS["Whether it is right"], "neuron_public", "cuda_registers"}
    above = page[: page.index(".. list-table::")]
    assert ("<figure" in above or ".. image::" in above) == (path.stem not in counts)


def test_figures_are_those_of_the_file(tmp_path: Path) -> None:
    data: dict[str, Any] = {
        "what": "predictions",
        "ladder": [
            {
                "step": 3,
                "what": "a step",
                "predicted_ms": 1.25,
                "range_ms": [1.125, 3.0],
                "published_ms": 2.5,
                "explained": False,
            }
        ],
        "step_4_by_merged_sums": {"2": 1.75},
        "kernels": {"any data": {"trn1 float32": {"predicted_ms": 0.75, "floor_ms": 0.5}}},
    }
    (tmp_path / "neuron_ladder.json").write_text(json.dumps(data))
    page = benchmarks.pages(tmp_path)["benchmarks/neuron_ladder"]
    cells = "1.250 ms", "1.125 to 3.000 ms", "2.500 ms", "0.500\n", "no\n", "1.750 ms", "1.50\n"
    for cell in cells:
        assert f"- {cell}" in page, cell


def test_tuning_is_shown_task_by_task(tmp_path: Path) -> None:
    spread = {"lower_quartile": 1.25, "median": 1.5, "upper_quartile": 1.75}
    task = {
        "trials": {"without": 9, "with the rule": 8},
        "fused": True,
        "same_schedule": False,
        "microseconds": {"without": 3000.0, "with the rule": 2000.0},
        "gain": spread,
        "fusing": None,
    }
    data = {
        "results": {"- a task": task},
        "summary": {
            "tasks": 1,
            "best_is_fused": 1,
            "geometric_mean_gain": 1.5,
            "worst_gain": 1.4,
            "worse_by_more_than_2_percent": [],
            "better_by_more_than_2_percent": ["- a task"],
        },
    }
    (tmp_path / "tune.json").write_text(json.dumps(data))
    page = benchmarks.pages(tmp_path)["benchmarks/tune"].replace("\u00a0", " ")
    row = ("\\- a task", "8", "3 ms", "2 ms", "1.50 (1.25 to 1.75)", "yes", "no", "\u2013")
    assert "    * - " + "\n      - ".join(row) + "\n" in page
    row = ("1", "1", "1.500", "1.400", "1", "0")
    assert "    * - " + "\n      - ".join(row) + "\n" in page


def test_models_beside_their_peers(tmp_path: Path) -> None:
    spread = {"lower_quartile": 0.5, "median": 0.75, "upper_quartile": 1.25}
    measured = {
        "parties": {"ours": {"difference": 2e-7}, "torch": {"difference": 0.0}},
        "median_s": {"ours": 0.003, "torch": 0.004},
        "best": "torch",
        "ours/best": spread,
    }
    alone = {"parties": {"ours": {}, "torch": {"error": "no"}}}
    data = {
        "benchmark": "models",
        "threads": [1, 2],
        "models": {"mlp": {"1": measured, "2": alone}},
        "geometric_mean_of_ours/best": {"blocks": {"1": 0.75}, "architectures": {"2": 0.8}},
    }
    (tmp_path / "models.json").write_text(json.dumps(data))
    page = benchmarks.pages(tmp_path)["benchmarks/models"].replace("\u00a0", " ")
    for part in (
        "- 3 ms",
        "- 4 ms",
        "- torch",
        "0.75 (0.50 to 1.25)",
        "2.0e-07",
        "blocks: 0.75",
        "architectures: 0.80",
        '<span>mlp</span><span class="track"><span class="bar" style="width: 75.0%">',
    ):
        assert part in page, part
    assert page.count("- mlp\n") == 1  # only where it was timed


def test_the_aim_of_the_convolutions_is_that_of_the_benchmark() -> None:
    source = (ROOT / "benchmarks" / "conv1d_cpu_report.py").read_text(encoding="utf-8")
    (aim,) = re.findall(r"^AT_MOST = ([\d.]+)", source, re.M)
    page = benchmarks.pages()["benchmarks/conv1d_cpu"]
    assert f"each layer takes at most {aim} of the time of its bound" in page


def test_a_result_that_nobody_knows_is_shown(tmp_path: Path) -> None:
    spread = {"lower_quartile": 1.5, "median": 2.0, "upper_quartile": 2.25}
    data = {
        "benchmark": "new",
        "machine": {"cpu": "a_processor", "cores": 4},
        "seed": 7,
        "models": {
            "small": {"median_s": {"before": 0.002, "after": 0.001}, "ratio": spread},
            "large": {"median_s": {"before": 0.5}, "samples_s": {"before": [0.5, 0.6]}},
        },
    }
    (tmp_path / "new_one.json").write_text(json.dumps(data))
    page = benchmarks.pages(tmp_path)["benchmarks/new_one"].replace("\u00a0", " ")
    assert page.startswith("New one\n=======\n")
    for cell in ("a\\_processor, 4 cores", "- 7\n", "- 2 ms", "- 500 ms", "2.00 (1.50 to 2.25)"):
        assert cell in page, cell
    assert "samples" not in page


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match="list.json is not a JSON object"):
        benchmarks.pages(tmp_path)


def test_pages_of_earlier_runs_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "GENERATORS", (lambda: {"new/page": "New\n===\n"},))
    (tmp_path / "old.rst").write_text("Old\n===\n")
    generate.write_all(tmp_path)
    assert [path.name for path in tmp_path.rglob("*.rst")] == ["page.rst"]
    before = (tmp_path / "new" / "page.rst").stat().st_mtime_ns
    generate.write_all(tmp_path)
    assert (tmp_path / "new" / "page.rst").stat().st_mtime_ns == before


# ---- Parts of pages ------------------------------------------------------------------------------


def test_a_table_refuses_a_row_of_another_length() -> None:
    with pytest.raises(ValueError, match="1 cells in a table of 2 columns"):
        rst.table(("a", "b"), [("c",)])


#: What begins something else than a paragraph, and how it is written so that it does not.
BEGINNINGS = {
    "+ bias": r"\+ bias",
    "- cost": r"\- cost",
    "-": r"\-",
    "* x": r"\* x",
    "1. first": r"1\. first",
    "iv) four": r"iv\) four",
    "(2) two": r"\(2) two",
    "#. next": r"\#. next",
    "-v  an option": r"\-v  an option",
    ":a: field": r"\:a: field",
    ">>> 1": r"\>>> 1",
    ".. note::": r"\.. note:\:",
    "1.5 x": "1.5 x",
    "a - b": "a - b",
}


@pytest.mark.parametrize("plain", BEGINNINGS)
def test_text_begins_no_list(plain: str) -> None:
    assert rst.text(plain) == BEGINNINGS[plain]
    assert rst.text(f"{plain}\n{plain}") == "\n".join([BEGINNINGS[plain]] * 2)


@pytest.mark.parametrize("plain", BEGINNINGS)
def test_a_cell_of_text_is_a_paragraph(plain: str) -> None:
    """As docutils reads it."""
    core = pytest.importorskip("docutils.core")
    tree = core.publish_doctree(rst.table(("head",), [(rst.text(plain),)]))
    cells = [cell for row in tree.findall(lambda n: n.tagname == "row") for cell in row]
    (cell,) = cells[1].children
    assert (cell.tagname, cell.astext()) == ("paragraph", plain)


def test_pictures_scroll_in_a_box_of_their_own(tmp_path: Path) -> None:
    """So that they need not shrink on a narrow screen; the style sheet knows the box's class."""
    assert rst.picture("a.svg", "A").startswith(
        ".. container:: picture\n\n    .. image:: a.svg\n        :alt: A\n"
    )
    (tmp_path / "primitive.svg").write_text("<svg/>")
    (tmp_path / "primitive.json").write_text(json.dumps({"results": {}}))
    assert ".. container:: picture\n" in benchmarks.pages(tmp_path)["benchmarks/primitive"]
    style = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    assert re.search(r"^\.picture \{[^}]*overflow-x: auto;", style, re.M)
    for page in (ROOT / "docs").rglob("*.rst"):
        if not {"generated", "tutorials"} & set(page.parts):
            text = page.read_text(encoding="utf-8")
            boxes = text.count(".. container:: picture\n\n    .. image::")
            assert text.count(".. image::") == boxes, page


def test_pictures_are_moved_in_the_order_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sphinx_gallery")
    monkeypatch.setattr(pictures, "PICTURES", tmp_path / "new")
    (tmp_path / "new").mkdir()
    for number, name in enumerate(("b.svg", "a.svg", "text.html", "no.txt")):
        path = tmp_path / "new" / name
        path.write_text(name)
        os.utime(path, ns=(number, number))
    paths = iter(str(tmp_path / f"page_{number}.png") for number in range(3))
    markup = pictures.collect((), {"image_path_iterator": paths}, {"src_dir": str(tmp_path)})
    assert (tmp_path / "page_0.svg").read_text() == "b.svg"
    assert (tmp_path / "page_1.svg").read_text() == "a.svg"
    assert markup.index("page_0.svg") < markup.index("page_1.svg") < markup.index("text.html")
    assert markup.endswith(".. raw:: html\n\n    text.html\n\n")
    assert markup.count(".. container:: picture") == 2  # one below the other
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["no.txt"]
    assert pictures.collect((), {"image_path_iterator": paths}, {}) == ""


# ---- Links ---------------------------------------------------------------------------------------


def site(folder: Path, **pages: str) -> list[str]:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return list(links.broken(folder))


def test_links_that_lead_somewhere(tmp_path: Path) -> None:
    assert not site(
        tmp_path,
        one='<a href="two.html#place">x</a><a href="#">top</a><a href="https://a.b/c">out</a>',
        two='<p id="place"><a href="one.html"><img src="data:image/png;base64,x"></a></p>',
    )


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ('<a href="three.html">x</a>', "three.html does not exist"),
        ('<a href="two.html#none">x</a>', "there is no such place"),
        ('<a href="#none">x</a>', "there is no such place"),
        ('<img src="none.png">', "none.png does not exist"),
        ('<script src="https://a.b/c.js"></script>', "from elsewhere"),
        ('<link rel="stylesheet" href="//a.b/c.css">', "from elsewhere"),
    ],
)
def test_links_that_lead_nowhere(tmp_path: Path, body: str, wrong: str) -> None:
    (line,) = site(tmp_path, one=body, two="<p>two</p>")
    assert line.startswith("one.html: ") and wrong in line
