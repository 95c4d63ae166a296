"""The command line: what its commands do and say, and their exit codes."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, topi

from cli_runs import product, run, saved, sum_of_part
from fuse_epilogue import _progress, cli, neuron, tune, workloads
from fuse_epilogue.cli import arguments as options
from fuse_epilogue.cli import inputs, output
from fuse_epilogue.cli.tune import _Shown
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.measurement.measure import arguments
from fuse_epilogue.schedule import NUMERICS
from fuse_epilogue.transform import POLICIES, FuseCascadedReductions, FuseReductionEpilogue
from fuse_epilogue.transform.fuse_one import DEFAULT_NUMERICS
from fuse_epilogue.transform.report import FUNCTION_ATTR
from tuning import evolution, nothing_runs, without_intrinsics

__all__ = ["product", "without_intrinsics"]


# ---- plan and nki --------------------------------------------------------------------------------


def test_plan_explains_and_writes(product, tmp_path, capsys):
    out, picture = tmp_path / "plan.json", tmp_path / "plan.svg"
    code, said, _ = run(
        *(capsys, "plan", product, "--target", "llvm", "--out", str(out), "--picture", str(picture))
    )
    assert code == output.DONE and "\nfusion: " in said
    chosen = Plan.from_json(out.read_text())
    assert chosen.sizes == {"m": 16, "n": 16, "k": 16}
    assert picture.read_text().startswith("<svg")
    code, said, _ = run(capsys, "plan", product, "--target", "llvm", "--json")
    data = json.loads(said)["main"]
    assert data["point"] == chosen.point and data["predicted_s"] == chosen.cost
    assert data["measured_s"] is None


def test_plan_measures_on_request_and_shows_progress(product, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, said, noted = run(capsys, "plan", product, "--measure", "3", "--json")
    assert code == output.DONE and json.loads(said)["main"]["measured_s"] > 0
    drawn = re.findall(r"main: \[#* *\] (\d)/3", noted)
    assert drawn == ["0", "1", "2", "3"] and noted.endswith("\n")


def test_plan_says_what_it_does_not_know(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    both = saved(
        tmp_path / "m.json",
        known=workloads.matmul(16, 16, 16),
        unknown=workloads.elementwise(8, 8),
    )
    code, said, noted = run(capsys, "plan", both, "--target", "llvm", "--json")
    data = json.loads(said)
    assert re.findall(r"\d/2", noted) == ["0/2", "1/2", "2/2"]
    assert code == output.REFUSED and "does not know this function" in data["unknown"]["error"]
    assert data["known"]["kind"] == "product"
    several = saved(
        tmp_path / "s.json", a=workloads.elementwise(8, 8), b=workloads.elementwise(4, 8)
    )
    code, said, _ = run(capsys, "plan", several, "--target", "llvm")
    assert code == output.REFUSED
    assert said.startswith("a, b: ") and said.count("does not know this function") == 1
    out = tmp_path / "p.json"
    code, _, said = run(capsys, "plan", both, "--target", "llvm", "--out", str(out))
    assert code == output.WRONG and "pick one of known, unknown with --function" in said
    assert not out.exists()
    picked = ("--function", "known", "--out", str(out), "--json")
    assert run(capsys, "plan", both, "--target", "llvm", *picked)[0] == output.DONE
    assert out.exists()


def test_nki_writes_a_kernel_that_runs(tmp_path, capsys):
    rows = saved(tmp_path / "rows.json", main=workloads.row_reduce(3, 4, activation="relu"))
    out = tmp_path / "kernel.py"
    code, _, noted = run(capsys, "nki", rows, "--machine", "trn2", "--out", str(out))
    assert code == output.DONE and re.search(
        r": [\d.]+ us predicted, [\d.]+ to [\d.]+ us by", noted
    )
    neuron.load(out.read_text())
    code, said, _ = run(capsys, "nki", rows, "--target", "trn2")
    assert code == output.DONE and said.rstrip("\n") == out.read_text().rstrip("\n")


# ---- What is wrong, and help ---------------------------------------------------------------------


CUDA = '{"kind": "cuda", "arch": "sm_90"}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "'missing.json': no file of that name"),
        (["plan", "--target", "riscy"], "--target 'riscy' is neither 'host', a GPU by name"),
        (["plan", "--target", '{"kind": "cuda"'], "is not valid JSON"),
        (["plan", "--taget=host"], "arguments: --taget=host \\(did you mean --target\\?\\)"),
        (["plan", "--target", "c"], "--target 'c': the planner does not know targets of kind 'c'"),
        (["fuse", "--target", "c"], "--target 'c': the planner does not know targets of kind 'c'"),
        (["plan", "--finite"], "--finite is for Trainium"),
        (["plan", "--round-shares"], "--round-shares is for Trainium"),
        (["plan", "--finite", "--target", CUDA], "--finite is for Trainium"),
        (["plan", "--measure", "2", "--target", "trn1"], "--measure is for this machine"),
        (["plan", "--measure", "2", "--target", CUDA], "--measure: .* cannot be timed on this"),
        (["plan", "--measure", "-3"], "argument --measure: .* a whole number from 0, not '-3'"),
        (["plan", "--picture", "p.png"], "--picture 'p.png': a picture is SVG"),
        (["plan", "--picture", "no/folder/p.svg"], "--picture cannot be written: .* no folder"),
        (["plan", "--out", "no/folder/p.json"], "--out cannot be written: there is no folder"),
        (["fuse", "--out", "no/folder/f.json"], "--out cannot be written: there is no folder"),
        (["nki", "--out", "no/folder/k.py"], "--out cannot be written: there is no folder"),
    ],
)
def test_what_is_wrong_is_named_before_the_input_is_read(arguments, message, capsys):
    command, *options = arguments
    code, said, noted = run(capsys, command, "missing.json", *options)
    assert code == output.WRONG and said == ""
    assert re.search(f"error: .*{message}", noted) and "Traceback" not in noted


def test_a_function_that_is_not_there_is_named(product, capsys):
    code, said, noted = run(capsys, "nki", product, "--function", "other")
    assert (code, said) == (output.WRONG, "")
    assert noted == "error: there is no PrimFunc 'other', only main\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert f"python -m fuse_epilogue {name}" in said
    for code in (output.DONE, output.REFUSED, output.WRONG, output.INTERRUPTED):
        assert re.search(rf"exit codes:.*^  {code} +\w", said, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"]], ids=" ".join)
def test_help_does_not_wait_for_tvm(words):
    command = [sys.executable, "-X", "importtime", "-m", "fuse_epilogue", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "fuse_epilogue.cli.commands" in loaded
    assert not {"tvm", "numpy"} & loaded


def test_words_of_options_are_those_of_the_package():
    assert set(options.MACHINES) == set(MACHINES)
    assert set(options.POLICIES) == set(POLICIES)
    assert set(options.NUMERICS) == set(NUMERICS)
    assert options.DEFAULT_NUMERICS == DEFAULT_NUMERICS


def test_it_runs_as_a_module(tmp_path):
    """Also where a script has something to say at the end of the process."""
    saved(tmp_path / "m.json", main=sum_of_part)
    script = tmp_path / "m.py"
    script.write_text(
        "import atexit\nfrom pathlib import Path\natexit.register(print, 'at the end')\n"
        "main = tvm.ir.load_json(Path(__file__).with_suffix('.json').read_text())\n"
    )
    command = [sys.executable, "-m", "fuse_epilogue", "explain", str(script), "--run-python"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == output.REFUSED and list(json.loads(done.stdout)) == ["main"]
    assert done.stderr == "at the end\n"


def test_interrupted(product, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(inputs, "read", interrupt)
    assert run(capsys, "explain", product) == (output.INTERRUPTED, "", "interrupted\n")


@pytest.mark.parametrize("error", [RuntimeError(""), inputs.InputError("no message")])
def test_interrupted_inside_of_tvm(error, product, capsys, monkeypatch):
    """There it arrives as an error that says nothing, which somebody may put into words."""
    before = signal.getsignal(signal.SIGINT)

    def interrupt(*_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise error

    monkeypatch.setattr(inputs, "read", interrupt)
    assert run(capsys, "explain", product) == (output.INTERRUPTED, "", "interrupted\n")
    assert signal.getsignal(signal.SIGINT) is before


# ---- explain and fuse ----------------------------------------------------------------------------


def test_explain_says_what_can_be_fused_and_what_not(tmp_path, capsys):
    both = saved(tmp_path / "m.json", good=workloads.matmul(8, 8, 8), bad=sum_of_part)
    code, said, _ = run(capsys, "explain", both)
    assert code == output.REFUSED
    assert "'matmul' can be fused:" in said and "'sum' stays as it is:" in said
    assert "[domain]" in said and "already" not in said
    code, said, _ = run(capsys, "explain", both, "--json")
    data = json.loads(said)
    assert code == output.REFUSED
    assert data["good"]["reductions"][0]["fusable"] is True
    assert data["bad"]["reductions"][0]["refused"]["code"] == "domain"
    code, said, _ = run(capsys, "explain", both, "--function", "good")
    assert code == output.DONE and "bad" not in said


def test_explain_says_which_reductions_can_be_one_loop(tmp_path, capsys):
    x = te.placeholder((4, 128), name="x")
    module = saved(tmp_path / "m.json", soft=te.create_prim_func([x, topi.nn.softmax(x)]))
    _, said, _ = run(capsys, "explain", module, "--numerics", "reassociate")
    chain = "'T_softmax_maxelem' -> 'T_softmax_expsum'"
    assert f"{chain} can be one loop (head, roll)" in said and "T.exp(" in said
    _, said, _ = run(capsys, "explain", module)
    assert f"{chain} cannot be one loop" in said and "[cascade-exact]" in said
    _, said, _ = run(capsys, "explain", module, "--json")
    (found,) = json.loads(said)["soft"]["cascades"]
    assert found["code"] == "cascade-exact" and not found["fused"]
    fused = FuseCascadedReductions("always")(tvm.ir.load_json(Path(module).read_text()))
    Path(module).write_text(tvm.ir.save_json(fused))
    _, said, _ = run(capsys, "explain", module)
    assert f"{chain} are one loop already (head, roll)" in said


def test_floats_stay_bit_for_bit_unless_asked(product, capsys):
    """As the pass has it; so says the help."""
    assert FuseReductionEpilogue().numerics == "exact"
    for command in ("explain", "fuse"):
        texts = [run(capsys, command, product)[1]]
        texts += [run(capsys, command, product, "--numerics", each)[1] for each in NUMERICS]
        assert ["absorbed" in text for text in texts] == [False, True, False]
        assert "(default: exact)" in " ".join(run(capsys, command, "--help")[1].split())


def test_explain_tells_what_is_fused_already(product, tmp_path, capsys):
    out = str(tmp_path / "fused.json")
    run(capsys, "fuse", product, "--out", out)
    code, said, _ = run(capsys, "explain", out)
    assert code == output.DONE
    assert "'matmul' is fused already:" in said and "can be fused" not in said
    code, said, _ = run(capsys, "explain", out, "--numerics", "reassociate")
    assert said.index("is fused already:") < said.index("can be fused further:")
    (entry,) = json.loads(run(capsys, "explain", out, "--json")[1])["main"]["reductions"]
    assert [step["epilogue"] for step in entry["fused_already"]] == ["bias", "relu"]
    assert not entry["fusable"] and entry["refused"]["code"] == "already-fused"
    # What it says of itself counts only while it has the same reductions.
    attr = inputs.read(out)["main"].attrs[FUNCTION_ATTR]
    other = workloads.row_reduce(8, 8, activation="relu").with_attr(FUNCTION_ATTR, attr)
    said = run(capsys, "explain", saved(tmp_path / "other.json", main=other))[1]
    assert "can be fused:" in said and "already" not in said
    damaged = workloads.matmul(8, 8, 8).with_attr(FUNCTION_ATTR, "[{}]")
    said = run(capsys, "explain", saved(tmp_path / "damaged.json", main=damaged))[1]
    assert "can be fused:" in said and "already" not in said


def test_nothing_to_fuse_is_no_refusal(tmp_path, capsys):
    plain = workloads.matmul(8, 8, 8, bias=False, activation=None)
    module = saved(tmp_path / "m.json", main=plain)
    assert run(capsys, "explain", module)[0] == run(capsys, "fuse", module)[0] == output.DONE


def test_fuse_writes_a_module_that_computes_the_same(product, tmp_path, capsys):
    out = tmp_path / "fused.json"
    before = inputs.read(product)
    code, said, _ = run(capsys, "fuse", product, "--out", str(out))
    assert code == output.DONE and "1 of 1 fused" in said
    after = inputs.read(str(out))
    arrays = arguments(before["main"])
    results = []
    for module in (before, after):
        tvm.compile(module, target="llvm")(*arrays)
        results.append(arrays[-1].numpy().copy())
    assert np.array_equal(*results)
    allocated = [text.count("sblock_alloc_buffer((") for text in (before.script(), after.script())]
    assert allocated == [2, 1]


def test_fuse_says_what_it_refuses(tmp_path, capsys):
    bad = saved(tmp_path / "m.json", main=sum_of_part)
    out = tmp_path / "fused.json"
    code, said, _ = run(capsys, "fuse", bad, "--out", str(out), "--json")
    assert code == output.REFUSED
    (function,) = json.loads(said)["functions"]
    assert function["reductions"][0]["fusion"]["stopped"]["code"] == "domain"
    tvm.ir.assert_structural_equal(inputs.read(str(out))["main"], inputs.read(bad)["main"])


def test_fuse_follows_its_policy(product, tmp_path, capsys):
    never = run(capsys, "fuse", product, "--policy", "never")
    planned = run(capsys, "fuse", product, "--target", "llvm")
    assert never[0] == planned[0] == output.DONE
    assert "never to fuse" in never[1] and "the planner predicts" in planned[1]


# ---- tune ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_intrinsics")
def test_tune_says_what_is_best_and_goes_on(tmp_path, capsys, monkeypatch):
    pytest.importorskip("cloudpickle")
    ran, real = [], tune.tune

    def quick(*args, on_trial, **options):
        def both(trial):
            ran.append(trial.number)
            on_trial(trial)

        small = {"strategy": evolution(16, 1), **nothing_runs()}
        return real(*args, on_trial=both, **options | small)

    monkeypatch.setattr(tune, "tune", quick)
    module = saved(tmp_path / "m.json", main=workloads.matmul(8, 8, 8))
    command = ["tune", module, "--out", str(tmp_path / "tuned"), "--cost-model", "random", "--json"]
    target = ["--target", '{"kind": "llvm", "num-cores": 1}']
    for _ in range(2):
        code, said, _ = run(capsys, *command, *target, "--trials", "2")
        assert code == output.DONE and json.loads(said)["main"]["measured_s"] == 1.5e-3
        assert ran == [1, 2]  # the second time nothing is left to do
    said = run(capsys, *command[:-1], *target, "--trials", "2")[1]
    assert said.splitlines()[0].startswith("main: 1500.00 us measured, ")
    more = f"  fuse-epilogue tune {module} --out {tmp_path / 'tuned'} --trials 4"
    assert said.splitlines()[-1] == more


def test_tune_shows_the_best_of_either_kind(capsys, monkeypatch):
    monkeypatch.setattr(_progress, "EVERY_S", 0.0)
    shown = _Shown()
    for trial in (
        tune.Trial("mm", 1, 4, 3e-6, ""),
        tune.Trial("mm", 2, 4, None, "it timed out\n", True),
        tune.Trial("mm", 3, 4, 2e-6, "", True),
        tune.Trial("other", 1, 1, 5e-6, ""),
    ):
        shown.show(trial)
    lines = [re.sub(r"\(.* left\) ", "", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "mm: 1 of 4 3.00 us; best unfused 3.00 us",
        "mm: 2 of 4 it timed out; best unfused 3.00 us",
        "mm: 3 of 4 2.00 us; best unfused 3.00 us; best fused 2.00 us",
        "other: 1 of 1 5.00 us; best unfused 5.00 us",
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "trn1"], "no machine measures kernels for it"),
        (["--tracker", "10.0.0.1:9190"], "--tracker and --key go together"),
        (["--key", "xeon"], "--tracker and --key go together"),
        (["--tracker", "9190", "--key", "xeon"], "--tracker must be HOST:PORT, not '9190'"),
        (["--tracker", "127.0.0.1:1", "--key", "xeon"], "there is no RPC tracker at 127.0.0.1:1"),
        (["--trials", "0"], "trials must be at least 1"),
    ],
)
def test_tune_refuses_what_it_cannot_do(more, message, product, tmp_path, capsys):
    pytest.importorskip("cloudpickle")
    code, _, noted = run(capsys, "tune", product, "--out", str(tmp_path / "db"), *more)
    assert code == output.WRONG and message in noted
    assert not (tmp_path / "db").exists()
