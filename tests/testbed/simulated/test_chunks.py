"""Long sequence at the cost of its changes, equal to a list copied at every step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.simulated.tables import Changing
from tests.errors import raises

lengths = st.integers(0, 70)


@given(st.data(), lengths)
def test_what_was_handed_out_stays_and_the_next_has_the_changes(
    data: st.DataObject, length: int
) -> None:
    model = list(range(length))
    changing = Changing(model)
    handed = [(changing.frozen(), tuple(model))]
    for step in range(data.draw(st.integers(0, 4))):
        places = data.draw(st.lists(st.integers(0, length - 1), max_size=5)) if length else []
        changing.put(places, [1000 * step + place for place in places])
        for place in places:
            model[place] = 1000 * step + place
        handed.append((changing.frozen(), tuple(model)))
    for frozen, expected in handed:
        assert frozen == expected and expected == frozen
        assert (len(frozen), tuple(frozen), hash(frozen)) == (length, expected, hash(expected))
        assert [frozen[place] for place in range(-length, length)] == [*expected, *expected]
        assert frozen[1:-1] == expected[1:-1]


def test_nothing_changed_is_the_same_object() -> None:
    changing = Changing(range(40))
    first = changing.frozen()
    assert changing.frozen() is first
    changing.put([3], [33])
    second = changing.frozen()
    assert second is not first and second != first and second != list(second)


@pytest.mark.parametrize("place", [5, -6])
def test_beyond_the_end(place: int) -> None:
    with raises(IndexError, "of 5"):
        Changing(range(5)).frozen()[place]
