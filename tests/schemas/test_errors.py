"""The sentence-maker of errors: order, punctuation, missing parts, one line, length."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError, nearest, not_allowed, sentence, unknown
from schemas.names import UnsafeNameError

CLAUSES = st.text(alphabet="ab1'`/-=()\n\t .,;:", max_size=30)
PLACES = st.text(alphabet="ab1/-.", max_size=30)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError(f"{UserError('said again')}."), "said again."),
        (UserError("it is cut off ..."), "it is cut off ..."),
        (UserError("is no folder", where=Path("..")), "..: is no folder."),
        (UserError("0 is too few", allowed="1 to 9"), "0 is too few; allowed: 1 to 9."),
        (UserError("disk 3\nis in use:\n", do="free it."), "disk 3 is in use; free it."),
        (
            UserError("-5 B/s", where="osd.disk", allowed="above 0", do="give 150MB/s"),
            "osd.disk: -5 B/s; allowed: above 0; give 150MB/s.",
        ),
        (UserError("1", where="size", do="give 2").at("a.yaml"), "a.yaml: size: 1; give 2."),
        (UserError(UserError("inner", where="a").at("b")), "b: a: inner."),
        (UserError("is empty", where="/a  b/trace."), "/a  b/trace.: is empty."),
    ],
)
def test_sentences(error, said):
    assert str(error) == said


@given(CLAUSES, PLACES, CLAUSES, CLAUSES)
def test_any_parts_make_one_line_with_one_end(what, where, allowed, do):
    said = sentence(what, where, allowed, do)
    assert said == " ".join(said.split()) or said == "."
    assert said.endswith(".") and not said.endswith((",.", ";.", ":."))
    assert len(said) <= sum(map(len, (what, where, allowed, do))) + len(": ; allowed: ; .")
    assert sentence(said) == said


@pytest.mark.parametrize(
    "error",
    [
        UserError("-5 B/s", where="osd.disk", allowed="above 0", do="give 150MB/s"),
        UnsafeNameError("../x", "node a", "leaves its folder"),
    ],
)
def test_fields_survive_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        *(("drl", "dlr"), ("usra", "ursa"), ("dlrpg", "dlr-pg"), ("oracel", "oracle")),
        *(("dlr_quik", "dlr-quick"), ("moss", "mos"), ("6aa", "6a"), ("DEFUALT", "default")),
        *(("foo-quick", ""), ("dlr-local", ""), ("mos-live", ""), ("15", ""), ("read", "")),
    ],
)
def test_a_name_is_near_if_it_is_a_slip(name, near):
    known = "dlr dlr-pg dlr-quick dlr-scale ursa ursa-live mos mos-quick oracle upmap-read default"
    found = nearest(name, [*known.split(), "1", "6a", "10"])
    assert found == (f"did you mean {near}?" if near else "")


def test_the_nearest_known_name():
    known = ["dlr-quick", "ursa-quick", "A"]
    assert nearest("dlr-quik", known) == nearest("DLR-quick", known) == "did you mean dlr-quick?"
    assert nearest("a", known) == "did you mean A?"
    assert not nearest("moon", known) and not nearest("", []) and not nearest("", known)
    assert nearest("dlr.yml", {"dlr.yaml": "specs/dlr.yaml"}) == "did you mean specs/dlr.yaml?"
    error = unknown("campaign", "ursa-quik", known, where="a", more=", or a file", do="look around")
    assert (error.what, error.where) == ("there is no campaign 'ursa-quik'", "a")
    assert error.allowed == "dlr-quick, ursa-quick, A, or a file"
    assert error.do == "did you mean ursa-quick? Look around"
    assert unknown("campaign", "moon", [], do="look around").allowed == "none"
    assert unknown("campaign", "moon", known, do="look around").do == "look around"
    assert not_allowed("--op", "sequ", "seq, rand").do == "did you mean seq?"
    assert not not_allowed("--blocks", 0, "1 to 1000").do
