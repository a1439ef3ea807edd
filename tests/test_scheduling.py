"""Which test files go to one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.scheduling import LOOPS, Scheduling, scope_of


@pytest.mark.parametrize(
    ("file", "scope"),
    [
        ("tests/controllers/prioritymeister/test_prioritizer.py", "prioritymeister"),
        ("tests/hotbed/test_pm.py", "prioritymeister"),
        ("tests/campaigns/test_pm_campaign.py", "prioritymeister"),
        ("tests/controllers/test_ursa_plan.py", "ursa"),
        ("tests/hotbed/test_ursa.py", "ursa"),
        ("tests/hotbed/test_bench_ursa.py", "ursa"),
        ("tests/analysis/test_ursa.py", "tests/analysis/test_ursa.py"),
        ("tests/test_scheduling.py", "tests/test_scheduling.py"),
    ],
)
def test_files_that_run_the_same_loops_go_together(file: str, scope: str, root: Path) -> None:
    assert (root / file).is_file()
    assert scope_of(f"{file}::test_x[a::b]") == scope


def test_every_subject_has_several_files_and_no_file_is_of_two(root: Path) -> None:
    files = [str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py")]
    of = Counter(subject for file in files for subject in LOOPS if LOOPS[subject].search(file))
    assert set(of) == set(LOOPS) and min(of.values()) > 3
    assert not [file for file in files if all(it.search(file) for it in LOOPS.values())]


def test_the_schedule_is_ours_where_files_are_shared_out(
    pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    for dist, expected in (("loadfile", [Scheduling]), ("load", [])):
        config = SimpleNamespace(
            getvalue=lambda name, dist=dist: {"dist": dist, "tx": ["2*popen"]}[name],
            option=SimpleNamespace(maxprocesses=None),
        )
        made = [
            hook.function(config, None)
            for hook in pytestconfig.hook.pytest_xdist_make_scheduler.get_hookimpls()
            if hook.function.__module__.endswith("conftest")
        ]
        assert [type(one) for one in made if one is not None] == expected
