"""Unions of cells: each cell has one model, and a parameter of another model is refused."""

from __future__ import annotations

from itertools import combinations

import pytest

from schemas.cells import SizedCell
from schemas.cells.dlr import DLR, OpenLoopWrites
from schemas.cells.mos import COSPERF, MOS
from schemas.cells.prioritymeister import PM
from schemas.cells.twochoice import BURSTS, OBJECTS
from schemas.cells.ursa import URSA
from schemas.errors import UserError
from tests.errors import raises

ALL = {"dlr": DLR, "ursa": URSA, "bursts": BURSTS, "objects": OBJECTS, "pm": PM}
ALL |= {"mos": MOS, "cosperf": COSPERF}


@pytest.mark.parametrize("cells", ALL.values(), ids=ALL)
def test_no_two_models_fit_one_cell(cells):
    for one, other in combinations(cells.members, 2):
        by = [name for name in one.model_fields if name in ("op", "scenario", "experiment")]
        by += [name for name in one.model_fields if name in ("method", "scheduler", "policy")]
        both = [
            set(getattr(one.model_fields[name].annotation, "__args__", ()))
            & set(getattr(other.model_fields[name].annotation, "__args__", ()))
            for name in by
            if name in other.model_fields
        ]
        assert not all(both), (one, other)


@pytest.mark.parametrize("cells", ALL.values(), ids=ALL)
def test_the_names_of_a_kind_are_those_of_its_models(cells):
    fields = {name for model in cells.members for name in model.model_fields}
    assert set(cells.fields) == fields
    assert set(cells.names) - fields <= {"size"}
    assert ("size" in cells.names) == issubclass(cells.members[0], SizedCell)


@pytest.mark.parametrize(
    ("values", "where", "facts"),
    [
        ({"op": "seq", "rate": 5}, "x", ["rate belongs to op open"]),
        ({"op": "seq", "mix": "A"}, "x", ["mix belongs to scenario mix"]),
        ({"op": "read"}, "x: op", ["'read'", "write, seq, rand, open, s3, other."]),
        ({"scenario": "mix"}, "x", ["op is missing", "write, seq, rand, open, s3, other."]),
        ({"op": "s3", "scenario": "mix"}, "x: scenario", ["with op s3; allowed: none, hetero"]),
        ({"op": "seq", "hot_nodes": True}, "x: hot_nodes", ["True", "a whole "]),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(values, where, facts):
    with raises(UserError, *facts) as raised:
        DLR.check(values, "x")
    assert str(raised.value).startswith(f"{where}: ")


def test_what_a_campaign_says_of_all_cells_may_be_idle():
    """For example `hot_nodes` for a grid of open-loop writes, and defaults of other models."""
    plain = DLR.of(op="open", scenario="skew", rate=5)
    assert isinstance(plain, OpenLoopWrites)
    given = {"op": "open", "scenario": "skew", "rate": 5, "workers": None, "hot_nodes": 2}
    assert DLR.of(**given, move_every_s=30) == plain
    assert MOS.of(experiment="adaptation", seconds=12) == MOS.of(experiment="adaptation")
