"""Places to execute the notebooks for sites: papermill in its own process, optionally in a control
group as narrow as a hosted JupyterHub's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HUB_CORES = 1.0
HUB_BYTES = 10**9


@dataclass(frozen=True)
class Place:
    """Site as notebooks meet it.

    Attributes:
        spec: the testbed's file, with the site's block.
        testbed: the testbed's name.
        folder: current folder, and folder for the notebooks' output.
        env: extra variables of the kernel: credentials, stand-ins.
        within: start of the command line, for example to enter a control group.
        parameters: by notebook, the place's replacements for the test's parameters.
    """

    spec: Path
    testbed: str
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Executed:
    """Executed notebook: `shown` is all of its outputs as JSON text."""

    notebook: Any
    shown: str
    peak_bytes: int

    @property
    def whole(self) -> bool:
        """True if every code cell ran."""
        return all(c.execution_count for c in self.notebook.cells if c.cell_type == "code")


_EXECUTE = """
import json, resource, sys, papermill
from campaigns.engine.own_kernel import OwnKernel
source, target, parameters = sys.argv[1:]
papermill.execute_notebook(
    source, target, parameters=json.loads(parameters), kernel_name="python3", progress_bar=False,
    start_timeout=300, kernel_manager_class=OwnKernel
)
# ru_maxrss of this process begins with the memory of the process that started it.
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(1024 * max(int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


def execute(place: Place, name: str, *, timeout_s: float = 600, **parameters: Any) -> Executed:
    """Execute a notebook of this project; raise AssertionError with its message if a cell fails."""
    target = place.folder / f"{name}.executed.ipynb"
    given = {**parameters, **place.parameters.get(name, {})}
    done = subprocess.run(
        [
            *place.within,
            *(sys.executable, "-c", _EXECUTE),
            str(ROOT / "notebooks" / f"{name}.ipynb"),
            str(target),
            json.dumps(given),
        ],
        cwd=place.folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        | dict(place.env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{name}:\n{done.stderr[-4000:]}"
    import nbformat

    notebook = nbformat.read(target, as_version=4)
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells], ensure_ascii=False)
    return Executed(notebook, shown, int(done.stdout.split()[-1]))


@contextmanager
def hub(name: str) -> Iterator[tuple[str, ...]]:
    """Provide a control group of one core and 1 GB, as in a hosted JupyterHub. Yield the start of a
    command line that runs in it (`Place.within`). It needs root."""
    from testbed.sites.local.cgroups import Cgroups, detect

    groups = Cgroups(detect(), name)
    procs = groups.create("notebooks", cpus=HUB_CORES, memory=HUB_BYTES)
    joins = "; ".join(f"echo $$ > '{path}'" for path in procs)
    try:
        yield ("sh", "-c", f'{joins}; exec "$@"', "hub")
    finally:
        groups.kill("", 10.0)
        groups.remove()
