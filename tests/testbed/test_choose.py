"""Choice of nodes, and messages if the choice is unclear."""

from __future__ import annotations

import pytest

from schemas.errors import UserError
from testbed import choose
from testbed.sites.contract import Testbed
from tests.errors import raises
from tests.testbed.fake_site import FakeSite
from tests.testbed.plain_specs import plain_spec


@pytest.fixture
def testbed() -> Testbed:
    return FakeSite().provision(plain_spec(admin=("admin", "mon", "client"), osds=3))


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
def test_nodes_by_name_group_and_role(testbed, text, names):
    assert [node.name for node in choose.select(testbed, text)] == names


@pytest.mark.parametrize(("text", "said"), [("osd9", "'osd9'"), (",", "least")])
def test_nodes_that_are_not(testbed, text, said):
    with raises(UserError, said):
        choose.select(testbed, text)
    with raises(UserError, allowed="osd2", do="did you mean admin?"):
        choose.select(testbed, "admn")
