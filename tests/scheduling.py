"""How test files are shared out among the processes of pytest-xdist (`--dist loadfile`)."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

# By subject, the files whose tests run the same compiled loops.
LOOPS = {
    "prioritymeister": re.compile(r"^tests/(?!analysis/).*(prioritymeister|/test_pm[_.])"),
    "ursa": re.compile(r"^tests/(?!analysis/).*/test_(bench_)?ursa"),
}


def scope_of(nodeid: str) -> str:
    """What goes to one process as a whole: a file, or all files that run the same compiled loops.

    In a fresh clone the first test that calls a loop compiles it. Two processes that begin with a
    file each of the same subject would compile all of it side by side, twice.
    """
    file = nodeid.split("::", 1)[0]
    return next((subject for subject, files in LOOPS.items() if files.search(file)), file)


class Scheduling(LoadFileScheduling):
    """`LoadFileScheduling` by `scope_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
