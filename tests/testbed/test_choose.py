"""Choice of testbed and nodes, and messages if the choice is unclear."""

from __future__ import annotations

import pytest

from schemas.errors import UserError
from testbed import choose
from testbed.spec import TestbedSpec, renamed
from tests.errors import raises
from tests.testbed.fake_site import FakeSite

SPEC = TestbedSpec.model_validate(
    {
        "name": "first",
        "store": None,
        "groups": [
            {"name": "admin", "roles": ["admin", "mon", "client"]},
            {"name": "osd", "count": 3, "roles": ["osd"], "disk": {}},
        ],
    }
)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    found = FakeSite()
    monkeypatch.setattr(choose, "kinds", lambda: ("fake",))
    monkeypatch.setattr(choose, "open_site", lambda kind: found)
    return found


def test_only_one_needs_no_name(site):
    with raises(UserError, do="hotbed up"):
        choose.choose()
    site.provision(SPEC)
    assert choose.choose() == (site, "first")
    assert choose.choose_ready()[1].name == "first"
    site.provision(SPEC)
    site.provision(renamed(SPEC, "second"))
    with raises(UserError, allowed="first, second", do="say which one, such as `--testbed first`"):
        choose.choose()
    assert choose.choose("second") == (site, "second")
    with raises(UserError, "'secnd'", allowed="first, second", do="did you mean second?"):
        choose.choose("secnd")


def test_a_failed_one_can_be_looked_at_but_not_used(site, monkeypatch):
    found = site.provision(SPEC)
    monkeypatch.setattr(site, "find", lambda name, *, partly=False: found)
    site.link("first", "osd1", False)
    with raises(UserError, "failed"):
        choose.choose_ready()
    assert choose.choose_partly() == found
    with raises(UserError, "no testbed 'third'"):
        choose.choose_partly("third")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("admin", ["admin"]),
        ("osd", ["osd0", "osd1", "osd2"]),
        ("mon", ["admin"]),
        ("osd2,osd0,osd2", ["osd0", "osd2"]),
        (" osd1 , mon ", ["admin", "osd1"]),
        ("all", ["admin", "osd0", "osd1", "osd2"]),
    ],
)
def test_nodes_by_name_group_and_role(site, text, names):
    testbed = site.provision(SPEC)
    assert [node.name for node in choose.select(testbed, text)] == names


@pytest.mark.parametrize(("text", "said"), [("osd9", "'osd9'"), (",", "least")])
def test_nodes_that_are_not(site, text, said):
    with raises(UserError, said):
        choose.select(site.provision(SPEC), text)
    with raises(UserError, allowed="osd2", do="did you mean admin?"):
        choose.select(site.provision(SPEC), "admn")
