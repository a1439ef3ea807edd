"""Distribution of test files to the processes of pytest-xdist (`--dist loadfile`)."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

# By subject, the files with tests that run the same compiled loops.
LOOPS = {
    "prioritymeister": re.compile(
        r"^tests/(?!analysis/|papers/test_prioritymeister\.py).*(prioritymeister|/test_pm[_.])"
    ),
    "ursa": re.compile(r"^tests/(?!analysis/).*/test_(bench_)?ursa"),
}


def scope_of(nodeid: str) -> str:
    """Return the group for one process: a file, or all files that run the same compiled loops.

    In a fresh clone the first test that calls a loop compiles it. Two processes with files of the
    same subject would both compile all of it in parallel.
    """
    file = nodeid.split("::", 1)[0]
    return next((subject for subject, files in LOOPS.items() if files.search(file)), file)


class Scheduling(LoadFileScheduling):
    """`LoadFileScheduling` by `scope_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
