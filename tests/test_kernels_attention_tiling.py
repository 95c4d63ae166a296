"""Blocks and register tiles of attention: they cover everything once, and fit into registers."""

from __future__ import annotations

import pytest

from fuse_epilogue.kernels.cpu.attention import tiling
from fuse_epilogue.kernels.cpu.attention.key_ranges import Joined, Linear
from fuse_epilogue.kernels.cpu.attention.tiling import Sizes, choose

LENGTHS = (1, 3, 15, 16, 17, 64, 197, 512, 2048)


@pytest.mark.parametrize(("lanes", "registers"), [(4, 32), (8, 16), (16, 32)])
@pytest.mark.parametrize("queries", LENGTHS)
@pytest.mark.parametrize("keys", LENGTHS)
def test_blocks_cover_all_queries_once(lanes: int, registers: int, queries: int, keys: int) -> None:
    chosen = choose(Sizes(queries, keys, 64, 64, lanes, registers))
    place = 0
    for block in chosen.queries:
        assert block.start == place and block.count > 0
        assert (block.vectors - 1) * lanes < block.queries <= block.vectors * lanes
        place += block.queries * block.count
    assert place == queries
    assert 0 < chosen.keys <= keys


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", LENGTHS)
def test_tiles_cover_all_rows_once_in_registers(registers: int, vectors: int, rows: int) -> None:
    place = 0
    for each in tiling.tiles(rows, vectors, registers):
        assert each.start == place
        assert each.rows * vectors + vectors + 1 <= registers
        place += each.rows * each.count
    assert place == rows


@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("vectors", range(1, 9))
def test_columns_of_tiles_are_all_vectors(registers: int, vectors: int) -> None:
    widths = tiling.widths(vectors, 64, 64, registers)
    assert sum(widths) == vectors
    assert max(widths) <= tiling.WIDEST


def test_what_is_chosen_has_the_fewest_cycles() -> None:
    sizes = Sizes(197, 197, 64, 64, 16, 32)
    chosen = choose(sizes)
    one = tiling.Tiling(sizes, tiling.blocks_of_queries(sizes, 1), 32)
    assert tiling.cycles(chosen) < tiling.cycles(one)


def test_scores_of_long_rows_stay_in_the_first_cache() -> None:
    chosen = choose(Sizes(2048, 2048, 64, 64, 16, 32))
    assert chosen.rolling
    assert 4 * chosen.keys * chosen.queries[0].queries <= tiling.L1_BYTES
    assert not choose(Sizes(64, 64, 64, 64, 16, 32)).rolling


def test_blocks_that_may_be_skipped_are_several() -> None:
    assert choose(
        Sizes(128, 128, 64, 64, 16, 32), tiling.ranges(Sizes(128, 128, 64, 64, 16, 32), None)
    ).rolling
    assert not choose(Sizes(128, 128, 64, 64, 16, 32)).rolling


def test_blocks_of_a_window_are_short() -> None:
    """Of long blocks, most keys would be hidden from most queries."""
    sizes = Sizes(4096, 4096, 64, 64, 16, 32)
    window = tiling.ranges(sizes, Joined((Linear(-1, 1, 31), Linear(1, -1, 0)), every=True))
    assert {last - first for first, last in window[0][1:]} == {16 + 31 - 1}
    blocks = choose(sizes, window).queries[0]
    assert blocks.queries < choose(sizes).queries[0].queries
    assert tiling.cycles(choose(sizes, window), window) < tiling.cycles(choose(sizes)) / 10
