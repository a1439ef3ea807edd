"""Rows in the paper's setting: each parameter filters the rows in turn."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from analysis.papers.dlr.compare import STANDARD, select


def frame() -> pd.DataFrame:
    """Return all combinations of two values per parameter; some lack a duration or a signal."""
    columns = ("op", "object_size", "concurrency", "signal", "variant", "duration_s", "campaign")
    values = (
        *(("seq", "rand"), (4 * 2**20, 4096), (16, 1), ("node", None), ("{}", '{"a":1}')),
        *((30.0, 60.0, None), ("dlr-quick", "dlr-full")),
    )
    rows = pd.DataFrame(itertools.product(*values), columns=columns)
    return rows[~((rows["campaign"] == "dlr-quick") & (rows["duration_s"] == 60.0))]


def one_by_one(table: pd.DataFrame, wanted: dict[str, object]) -> pd.DataFrame:
    if "duration_s" not in wanted:
        longest = table["campaign"].map({"dlr-quick": 30.0, "dlr-full": 60.0})
        table = table[table["duration_s"].isna() | (table["duration_s"] == longest)]
    for name, value in {**STANDARD, **wanted}.items():
        table = table[table[name] == value]
    return table


@pytest.mark.parametrize(
    "wanted", [{"op": "seq"}, {"op": "rand", "concurrency": 1}, {"duration_s": 30.0}, {"op": "x"}]
)
def test_rows_are_those_that_each_parameter_leaves(wanted: dict[str, object]) -> None:
    found = select(frame(), **wanted)
    pd.testing.assert_frame_equal(found, one_by_one(frame(), wanted))
    assert found.empty == (wanted == {"op": "x"})
    assert select(frame().iloc[:0], **wanted).empty
