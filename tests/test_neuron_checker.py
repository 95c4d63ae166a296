"""Each rule of the checker: a kernel that breaks it and nothing else, and a twin that passes."""

from __future__ import annotations

import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.checker import RULES
from neuron_kernels import MATMUL, copied, depthwise, kernel

F32, BF16, I32 = "float32", "bfloat16", "int32"

#: A result next to t, for instructions that do not work in place.
R = "r = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n"
#: A column of float32 in SBUF, of ones.
V = "v = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf); nisa.memset(v, 1.0)\n"
#: 2 times 32 zeros in SBUF.
U = "u = nl.zeros((128, 2, 32), nl.float32, buffer=nl.sbuf); nisa.memset(r, 0)\n"
#: p is a copy of t in PSUM.
P = "p = nl.ndarray((128, 64), nl.float32, buffer=nl.psum); nisa.tensor_copy(p, t)\n"
#: Two matrices in SBUF, and room for their product in PSUM.
M = """\
a = nl.ndarray((128, 128), nl.{a}, buffer=nl.sbuf); nisa.memset(a, 1.0)
b = nl.ndarray((128, {n}), nl.{b}, buffer=nl.sbuf); nisa.memset(b, 1.0)
p = nl.ndarray((128, {n}), nl.float32, buffer=nl.psum)
"""


def product(a: str = F32, b: str = F32, n: int = 64, call: str = "p, a, b") -> str:
    return M.format(a=a, b=b, n=n) + f"nisa.nc_matmul({call})"


#: A product over pairs of rows.
DOUBLE = """\
a = nl.ndarray((128, 2, 64), nl.{t}, buffer=nl.sbuf); nisa.memset(a, 1.0)
b = nl.ndarray((128, 2, 32), nl.{t}, buffer=nl.sbuf); nisa.memset(b, 1.0)
p = nl.ndarray((64, 32), nl.float32, buffer=nl.psum)
nisa.nc_matmul(p, a, b, perf_mode=nisa.matmul_perf_mode.double_row)"""


def free(space: str, shape: str, dtype: str = F32, index: str = "") -> str:
    return f"big = nl.ndarray({shape}, nl.{dtype}, buffer=nl.{space})\nnisa.memset(big{index}, 0)"


#: Rule, what breaks it, what does not, and the machine: the last line of the first is to blame.
CASES = [
    ("partitions", free("sbuf", "(160, 8)", index="[0:128, :]"), free("sbuf", "(128, 8)"), "trn1"),
    (
        "start-partition",
        "nisa.memset(t[32:72, :], 0)",
        "nisa.memset(t[64:104, :], 0)",
        "trn1",
    ),
    (
        "start-partition",
        "nisa.memset(t[16:128, :], 0)",
        "nisa.memset(t[0:112, :], 0)",
        "trn1",
    ),
    ("start-partition", "nisa.memset(t[16:32, :], 0)", "nisa.memset(t[96:128, :], 0)", "trn1"),
    (
        "start-partition",
        "nisa.tensor_copy(t[1:2, :], t[1:2, :])",
        "nisa.dma_copy(t[32:33, :], x[0:1, :])",
        "trn1",
    ),
    (
        "free-size",
        free("sbuf", "(128, 65537)", "int8"),
        free("sbuf", "(128, 65536)", "int8"),
        "trn1",
    ),
    (
        "free-size",
        free("psum", "(128, 4097)", "bfloat16"),
        free("psum", "(128, 4096)", "bfloat16"),
        "trn1",
    ),
    (
        "pattern-dims",
        free("sbuf", "(128, 2, 2, 2, 2, 2)"),
        free("sbuf", "(128, 2, 2, 2, 2)"),
        "trn1",
    ),
    (
        "sbuf-capacity",
        "a = nl.ndarray((128, 49152 - 63), nl.float32, buffer=nl.sbuf)\nnisa.memset(a, 0)",
        "a = nl.ndarray((128, 49152 - 64), nl.float32, buffer=nl.sbuf)\nnisa.memset(a, 0)",
        "trn1",
    ),
    (
        "sbuf-capacity",
        "a = nl.ndarray((1, 57344 - 63), nl.float32, buffer=nl.sbuf)\nnisa.memset(a, 0)",
        "a = nl.ndarray((1, 57344 - 64), nl.float32, buffer=nl.sbuf)\nnisa.memset(a, 0)",
        "trn2",
    ),
    (
        "psum-capacity",
        # 8 banks and one column of a ninth.
        "a = nl.ndarray((128, 3585), nl.float32, buffer=nl.psum)\n"
        "b = nl.ndarray((128, 1), nl.float32, buffer=nl.psum)\n"
        "nisa.memset(a, 0)\nnisa.tensor_copy(b, a[:, 0:1]); nisa.tensor_copy(t[:, 0:1], b)",
        "a = nl.ndarray((128, 3584), nl.float32, buffer=nl.psum)\n"
        "b = nl.ndarray((128, 1), nl.float32, buffer=nl.psum)\n"
        "nisa.memset(a, 0)\nnisa.tensor_copy(b, a[:, 0:1]); nisa.tensor_copy(t[:, 0:1], b)",
        "trn1",
    ),
    (
        "hbm-capacity",
        # x and y are there already, the limit is reached without them.
        "h = nl.ndarray((32768, 1024, 1024), nl.int8, buffer=nl.hbm)",
        "h = nl.ndarray((32767, 1024, 1024), nl.int8, buffer=nl.hbm)",
        "trn1",
    ),
    (
        "bank-crossing",
        M.format(a=F32, b=F32, n=512).replace(
            "p = nl.ndarray((128, 512)", "p = nl.ndarray((128, 1024)"
        )
        + "nisa.nc_matmul(p[:, 256:768], a, b)",
        M.format(a=F32, b=F32, n=512).replace(
            "p = nl.ndarray((128, 512)", "p = nl.ndarray((128, 1024)"
        )
        + "nisa.nc_matmul(p[:, 512:1024], a, b)",
        "trn1",
    ),
    (
        "per-partition-operand",
        R + "nisa.tensor_scalar(r, t, nl.add, t[:, 0:2])",
        R + "nisa.tensor_scalar(r, t, nl.add, t[:, 0:1])",
        "trn1",
    ),
    (
        "per-partition-operand",
        R + V + "nisa.activation(r, nl.exp, t, scale=v[0:64, :])",
        R + V + "nisa.activation(r, nl.exp, t, scale=v)",
        "trn1",
    ),
    (
        "per-partition-type",
        R + V.replace(F32, BF16) + "nisa.tensor_scalar(r, t, nl.add, 1.0, False, nl.multiply, v)",
        R + V + "nisa.tensor_scalar(r, t, nl.add, 1.0, False, nl.multiply, v)",
        "trn1",
    ),
    (
        "per-partition-type",
        R + V.replace(F32, BF16) + "nisa.activation(r, nl.exp, t, scale=v)",
        R + V.replace(F32, BF16) + "nisa.activation(r, nl.exp, t, bias=v)",
        "trn1",
    ),
    (
        "per-partition-type",
        R + V.replace(F32, BF16) + "nisa.activation_reduce(r, nl.exp, t, nl.add, v, scale=v)",
        R + V + "nisa.activation_reduce(r, nl.exp, t, nl.add, t[:, 0:1], scale=v)",
        "trn1",
    ),
    (
        "operand-types",
        R + "nisa.tensor_tensor(r, t, t, nl.bitwise_xor)",
        R + free("sbuf", "(128, 64)", I32) + "\nnisa.tensor_tensor(big, big, big, nl.bitwise_xor)"
        "\nnisa.tensor_copy(r, big)",
        "trn1",
    ),
    (
        "constant-bias",
        R + "nisa.activation(r, nl.exp, t, bias=1.0)",
        R + V + "nisa.activation(r, nl.exp, t, bias=v)",
        "trn1",
    ),
    (
        "both-psum",
        R + P + "nisa.tensor_tensor(r, p, p, nl.add)",
        R + P + "nisa.tensor_tensor(r, p, t, nl.add)",
        "trn1",
    ),
    (
        "both-psum",
        R + P + "nisa.scalar_tensor_tensor(r, p, nl.add, 1.0, nl.add, p)",
        R + P + "nisa.scalar_tensor_tensor(r, t, nl.add, 1.0, nl.add, p)",
        "trn1",
    ),
    (
        "matmul-memory",
        P
        + product(call="p, a, q")
        .replace("b =", "q =")
        .replace("(b,", "(q,")
        .replace(
            "q = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)",
            "q = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)",
        ),
        product(),
        "trn1",
    ),
    (
        "matmul-memory",
        product().replace("buffer=nl.psum", "buffer=nl.sbuf"),
        product(),
        "trn1",
    ),
    ("matmul-types", product(a=BF16), product(a=BF16, b=BF16), "trn1"),
    ("matmul-types", product(a=BF16), product(a=BF16, b="float16"), "trn2"),
    (
        "matmul-types",
        product().replace("nl.float32, buffer=nl.psum", "nl.bfloat16, buffer=nl.psum"),
        product(),
        "trn1",
    ),
    ("matmul-size", product(n=513), product(n=512), "trn1"),
    (
        "accumulate",
        M.format(a=F32, b=F32, n=64)
        + "nisa.memset(p, 0)\nnisa.nc_matmul(p, a, b, accumulate=True)",
        M.format(a=F32, b=F32, n=64) + "for k in range(2):\n"
        "    nisa.nc_matmul(p, a, b, accumulate=(k > 0))",
        "trn1",
    ),
    (
        "accumulate",
        product() + "\nnisa.tensor_scalar(p, p, nl.add, 1.0)\nnisa.nc_matmul(p, a, b)",
        product() + "\nnisa.nc_matmul(p, a, b)",
        "trn1",
    ),
    (
        "transpose",
        "q = nl.ndarray((64, 128), nl.bfloat16, buffer=nl.psum)\nnisa.nc_transpose(q, t)",
        "q = nl.ndarray((64, 128), nl.float32, buffer=nl.psum)\nnisa.nc_transpose(q, t)",
        "trn1",
    ),
    ("dma-psum", P + "nisa.dma_copy(t, p)", P + "nisa.tensor_copy(t, p)", "trn1"),
    (
        "dma-types",
        "h = nl.ndarray((128, 64), nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.dma_copy(h, t, dge_mode=nisa.dge_mode.hwdge)",
        "h = nl.ndarray((128, 64), nl.bfloat16, buffer=nl.sbuf)\nnisa.dma_copy(h, t)",
        "trn1",
    ),
    (
        "gpsimd-psum",
        P + "nisa.tensor_copy(t, p, engine=nisa.gpsimd_engine)",
        P + "nisa.tensor_copy(t, p, engine=nisa.vector_engine)",
        "trn2",
    ),
    (
        "gpsimd-psum",
        P + "nisa.memset(p, 0, engine=nisa.gpsimd_engine)",
        P + "nisa.memset(t, 0, engine=nisa.gpsimd_engine)",
        "trn1",
    ),
    (
        "scalar-copy",
        R + "nisa.tensor_copy(r, t, engine=nisa.scalar_engine)",
        R + "nisa.activation(r, nl.copy, t)",
        "trn1",
    ),
    (
        "in-flight",
        "nisa.tensor_copy(t[:, 1:64], t[:, 0:63])",
        "nisa.tensor_copy(t[:, 32:64], t[:, 0:32])",
        "trn1",
    ),
    (
        "in-flight",
        "nisa.tensor_reduce(t[:, 0:2], nl.add, t.reshape((128, 2, 32)), axis=2)",
        "nisa.tensor_reduce(t[:, 5:6], nl.add, t, axis=1)",
        "trn1",
    ),
    (
        "uninitialised",
        R + "nisa.memset(r[:, 0:63], 0)\nnisa.tensor_tensor(r, r, t, nl.add)",
        R + "nisa.memset(r[:, 0:63], 0); nisa.memset(r[:, 63:64], 0)\n"
        "nisa.tensor_tensor(r, r, t, nl.add)",
        "trn1",
    ),
    (
        "out-of-bounds",
        "nisa.memset(t[:, 60:65], 0)",
        "nisa.memset(t[:, 60:64], 0)",
        "trn1",
    ),
    (
        "out-of-bounds",
        "nisa.memset(t.ap(((64, 128), (1, 2)), offset=63), 0)",
        "nisa.memset(t.ap(((64, 128), (1, 2)), offset=62), 0)",
        "trn1",
    ),
    (
        "shapes",
        R + "nisa.tensor_tensor(r, t, t[:, 0:1], nl.add)",
        R + "nisa.tensor_tensor(r, t, t.ap(((64, 128), (0, 64))), nl.add)",
        "trn1",
    ),
    (
        "reduce-axes",
        V + "nisa.tensor_reduce(v, nl.add, t, axis=0)",
        V + "nisa.tensor_reduce(v, nl.add, t, axis=1)",
        "trn1",
    ),
    (
        "memory",
        "nisa.tensor_copy(t, x)",
        "nisa.dma_copy(t, x)",
        "trn1",
    ),
    ("language", "r = t + t", "nisa.tensor_tensor(t, t, t, nl.add)", "trn1"),
    ("assertion", "assert x.shape[1] % 128 == 0", "assert x.shape[1] % 64 == 0", "trn1"),
]


def loaded(middle: str) -> neuron.Kernel:
    return neuron.load(copied(middle), {"x": ((128, 64), F32)})


@pytest.mark.parametrize(("rule", "broken", "twin", "machine"), CASES)
def test_rule(rule: str, broken: str, twin: str, machine: str) -> None:
    with pytest.raises(neuron.CheckError) as error:
        loaded(broken).check(machine)
    assert {violation.rule for violation in error.value.violations} == {rule}
    lines = copied(broken).splitlines()
    last = len(lines) - lines[::-1].index("    " + broken.splitlines()[-1])
    blamed = last - 1 if rule == "partitions" else last
    assert [violation.line for violation in error.value.violations] == [blamed]
    assert str(error.value).startswith(f"line {blamed}: ")
    loaded(twin).check(machine)


def test_every_rule_has_a_case() -> None:
    # An instruction's engine is known when the text is read: tests of the language.
    # Products of numbers that share a scale are only on trn3: `test_products_by_machine`.
    cases = {case[0] for case in CASES} | {"mx-operands"}
    assert {rule.name for rule in RULES} - {"engine"} == cases
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.what and rule.source for rule in RULES)


MX = """\
a = nl.ndarray((128, {m}), nl.float8_e4m3fn_x4, buffer=nl.sbuf); nisa.memset(a.view(nl.uint32), 0)
b = nl.ndarray((128, {n}), nl.float8_e4m3fn_x4, buffer=nl.sbuf); nisa.memset(b.view(nl.uint32), 0)
sa = nl.ndarray((128, {m}), nl.uint8, buffer=nl.sbuf); nisa.memset(sa, 127)
sb = nl.ndarray((128, {n}), nl.uint8, buffer=nl.sbuf); nisa.memset(sb, 127)
p = nl.ndarray(({m}, {n}), nl.{r}, buffer=nl.psum)
nisa.nc_matmul_mx(p, a, b, sa, sb)"""


@pytest.mark.parametrize(
    ("rule", "broken", "twin", "machine"),
    [
        ("mx-operands", MX.format(m=63, n=64, r=F32), MX.format(m=64, n=64, r=F32), "trn3"),
        ("mx-operands", MX.format(m=64, n=64, r="float16"), MX.format(m=64, n=64, r=BF16), "trn3"),
        ("matmul-size", MX.format(m=64, n=1024, r=F32), MX.format(m=64, n=1024, r=BF16), "trn3"),
        ("matmul-size", MX.format(m=64, n=1025, r=BF16), MX.format(m=64, n=512, r=F32), "trn3"),
        # From trn3 on, a product fills several banks, and is bfloat16 if asked.
        ("matmul-size", product(n=4097), product(n=4096), "trn3"),
        (
            "matmul-types",
            product(BF16, BF16).replace("nl.float32, buffer=nl.psum", "nl.float16, buffer=nl.psum"),
            product(BF16, BF16).replace(
                "nl.float32, buffer=nl.psum", "nl.bfloat16, buffer=nl.psum"
            ),
            "trn3",
        ),
        ("matmul-types", DOUBLE.format(t=BF16), DOUBLE.format(t="float8_e4m3"), "trn2"),
    ],
)
def test_products_by_machine(rule: str, broken: str, twin: str, machine: str) -> None:
    with pytest.raises(neuron.CheckError) as error:
        loaded(broken).check(machine)
    assert rule in {violation.rule for violation in error.value.violations}
    loaded(twin).check(machine)


def test_pairs_of_rows_are_there_from_trn2_on() -> None:
    with pytest.raises(neuron.CheckError, match="double_row is there from trn2 on"):
        loaded(DOUBLE.format(t="float8_e4m3")).check("trn1")


def test_an_element_that_is_written_twice_has_no_value() -> None:
    # Rows of r that overlap, and one row that all others go to: a place for what nobody needs.
    for pattern in ("((64, 128), (2, 2), (1, 32))", "((64, 128), (0, 2), (1, 32))"):
        text = R + U + f"nisa.tensor_copy(r.ap({pattern}), u)\n"
        with pytest.raises(neuron.CheckError) as error:
            loaded(text).check("trn1")
        assert {violation.rule for violation in error.value.violations} == {"uninitialised"}
        with pytest.raises(neuron.KernelError, match="r\\[0, 0\\], which was not written"):
            loaded(text)(np.zeros((128, 64), F32))
        kept = loaded(text + "nisa.tensor_copy(r, t)\n")
        kept.check("trn1")
        x = np.ones((128, 64), F32)
        np.testing.assert_array_equal(kept(x), x)


def test_a_stationary_operand_has_128_columns() -> None:
    # Its columns are the partitions of the result.
    text = product().replace("a = nl.ndarray((128, 128)", "a = nl.ndarray((128, 129)")
    with pytest.raises(neuron.CheckError) as error:
        loaded(text.replace("p = nl.ndarray((128, 64)", "p = nl.ndarray((129, 64)")).check()
    assert [v.rule for v in error.value.violations] == ["partitions", "matmul-size"]


@pytest.mark.parametrize(
    ("middle", "good"),
    [
        (R + "nisa.activation(r, nl.exp, t, bias=1.0)", "trn2"),
        (R + "nisa.tensor_copy(r, t, engine=nisa.scalar_engine)", "trn2"),
        ("a = nl.ndarray((128, 50000), nl.float32, buffer=nl.sbuf)\nnisa.memset(a, 0)", "trn2"),
    ],
)
def test_only_from_trn2_on(middle: str, good: str) -> None:
    loaded(middle).check(good)
    with pytest.raises(neuron.CheckError):
        loaded(middle).check("trn1")


def test_all_violations_are_reported_by_line_and_counted() -> None:
    text = copied(
        """\
        for i in range(4):
            nisa.memset(t[16:32, i : i + 1], 0)
        nisa.tensor_copy(t[:, 1:64], t[:, 0:63])
        """
    )
    with pytest.raises(neuron.CheckError) as error:
        neuron.load(text, {"x": ((128, 64), F32)}).check("trn1")
    found = [(v.line, v.rule, v.times) for v in error.value.violations]
    assert found == [(12, "start-partition", 4), (13, "in-flight", 1)]
    assert "(4 times)" in str(error.value)


def test_an_output_that_is_not_written_everywhere() -> None:
    text = kernel(
        """\
        y = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(y[0, :], x)
        return y
        """
    )
    with pytest.raises(neuron.CheckError, match=r"line 8: y\[1, 0\] is returned"):
        neuron.load(text).check("trn1", ((4,), F32))


def test_resources_of_live_ranges() -> None:
    # In use at once: x and y of a tile (8 bytes a column), three taps and a bias.
    specs = [((2, 256, 100), F32), ((256, 3), F32), ((256,), F32)]
    found = neuron.load(depthwise(2, 256, 100)).check("trn1", *specs)
    assert (found.sbuf_bytes, found.psum_bytes) == (2 * 400 + 16, 0)
    assert found.instructions == {"dma_copy": 12, "activation": 4, "scalar_tensor_tensor": 8}
    assert found.engines == {"dma": 12, "scalar": 4, "vector": 8}
    assert found.loaded_bytes == 4 * (2 * 256 * 100 + 256 * 3 + 256)
    assert found.stored_bytes == 4 * 2 * 256 * 100


@pytest.mark.parametrize("machine", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_resources_of_a_matmul(machine: str, dtype: str) -> None:
    specs = [((128, 256), dtype), ((256, 512), dtype), ((128,), F32)]
    found = neuron.load(MATMUL).check(machine, *specs)
    # The sum fills a bank; a turned tile is less than one and takes one.
    assert (found.psum_banks, found.psum_bytes) == (2, 4096)
    size = np.dtype("float32").itemsize if dtype == F32 else 2
    # At a product: a, the bias, left and right; at the end: the bias and the result.
    assert found.sbuf_bytes == 4 + max((256 + 128 + 512) * size, 4 * 512)


def test_unknown_machine() -> None:
    with pytest.raises(ValueError, match="trn9"):
        loaded("pass").check("trn9")


def test_a_prediction_is_made_of_the_same_walk() -> None:
    specs = [((2, 256, 100), F32), ((256, 3), F32), ((256,), F32)]
    read = neuron.load(depthwise(2, 256, 100))
    assert read.trace(*specs) is read.trace(*specs)
    assert "predicted" in str(read.predict("trn1", *specs))
    assert read.predict("trn2", *specs).latency_ms > 0


@pytest.mark.parametrize(("machine", "kib"), [("trn1", 192), ("trn2", 224), ("trn3", 256)])
def test_sbuf_has_room_for_that_much(machine: str, kib: int) -> None:
    def filled(columns: int) -> neuron.Kernel:
        text = kernel(
            f"t = nl.ndarray((128, {columns}), nl.float32, buffer=nl.sbuf)\n"
            "nisa.memset(t, 0.0)\ny = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)\n"
            "nisa.dma_copy(y, t[:, 0:1])\nreturn y\n"
        )
        return neuron.load(text, {"x": ((1, 1), "float32")})

    filled(kib * 256).check(machine)
    with pytest.raises(neuron.CheckError, match=f"there are {kib * 1024}"):
        filled(kib * 256 + 1).check(machine)
