"""The costs that all kinds of kernels for processors share, and choices that depend on them."""

from __future__ import annotations

from tvm import te, tirx, topi

from fuse_epilogue.kernels.cpu import contraction, elementwise
from fuse_epilogue.kernels.cpu.contraction.plan import Plan, choose
from fuse_epilogue.kernels.cpu.costs import (
    CALL_S,
    LEVELS,
    MEMORY_BYTES_PER_CYCLE,
    added,
    bytes_per_cycle,
    pieces,
    together,
    work,
)
from fuse_epilogue.recognize.contraction import read_contraction
from fuse_epilogue.recognize.stages import read_program
from fuse_epilogue.schedules import host
from fuse_epilogue.workloads import matmul


def plan_of(m: int, n: int, k: int, *, constant: bool) -> Plan:
    """Return the plan of a product, the second operand of which may be constant."""
    program = read_program(matmul(m, n, k))
    assert program is not None
    read = read_contraction(program)
    assert read is not None
    return choose(read, contraction.machine_of(host(1), 1), (False, constant))[0]


def test_each_level_of_memory_is_slower_than_the_one_before() -> None:
    rates = [bytes_per_cycle(size) for size, _ in LEVELS]
    assert rates == [rate for _, rate in LEVELS] == sorted(rates, reverse=True)
    assert bytes_per_cycle(LEVELS[-1][0] + 1) == MEMORY_BYTES_PER_CYCLE < rates[-1]


def test_the_shorter_one_of_computing_and_moving_adds_a_part() -> None:
    assert together(100.0, 10.0) == together(10.0, 100.0)
    assert 100.0 < together(100.0, 10.0) < 110.0


def test_loads_cost_nothing_until_they_take_nearly_as_long_as_products() -> None:
    assert added(12.0, 8.0, 10) == added(8.0, 12.0, 10) < 1.01 * 12.0
    assert 1.05 * 12.0 < added(12.0, 12.0, 10) < added(12.0, 12.0, 6)
    assert added(12.0, 0.0, 6) == 12.0


def test_the_last_elements_are_halves_of_a_vector() -> None:
    assert [pieces(extent, 16) for extent in (16, 17, 31, 32)] == [1, 2, 5, 2]


def test_a_condition_counts_only_in_the_loop_that_it_depends_on() -> None:
    i, j = (tirx.Var(name, "int64") for name in "ij")
    x = tirx.decl_buffer((64, 64), "float32", "x")
    padded = tirx.if_then_else(i >= 1, x[i, j], tirx.const(0.0, "float32"))
    assert work(padded, j) == work(x[i, j], j) < work(padded, i)


def test_a_sine_costs_more_than_an_exponential() -> None:
    x = tirx.Var("x", "float32")
    assert work(tirx.sqrt(x)) < work(tirx.exp(x)) < work(tirx.sin(x)) == work(tirx.cos(x))


def test_weights_that_are_far_away_do_not_hide_what_is_computed() -> None:
    # Both ways wait for 600 KB of weights; with seven columns in a vector of eight, twice as long
    # is computed.
    plan = plan_of(7, 512, 300, constant=True)
    assert plan.packing == "constant"
    assert plan.width % contraction.machine_of(host(1), 1).lanes == 0


def test_moving_less_is_predicted_to_be_faster() -> None:
    def predicted(rows: int) -> float:
        x = te.placeholder((rows, 64), "float32", "x")
        y = te.compute((rows, 64), lambda i, j: x[i, j] + 1.0, "y")
        program = read_program(te.create_prim_func([x, y]))
        assert program is not None
        scheduled = elementwise.schedule(program, host(1))
        assert scheduled is not None
        return scheduled.predicted_s

    times = [predicted(1 << power) for power in range(4, 18)]
    assert CALL_S < times[0] and times == sorted(times)


def test_results_in_one_set_of_the_cache_cost_more() -> None:
    """Stored one by one, channels 4,096 bytes from each other evict each other's lines."""
    cycles = []
    for length in (1024, 1040):
        x = te.placeholder((1, 32, length), "float32")
        weight = te.placeholder((64, 32, 2), "float32")
        result = topi.nn.conv1d(x, weight, padding=(16, 0), dilation=16)
        program = read_program(te.create_prim_func([x, weight, result]))
        assert program is not None
        read = read_contraction(program)
        assert read is not None
        plan = choose(read, contraction.machine_of(host(1), 1), (False, True))[0]
        assert plan.contraction.stored.factors[plan.vector] == length
        cycles.append(plan.cycles)
    assert cycles[0] > 2 * cycles[1]
