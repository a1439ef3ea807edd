"""Code for testbed nodes: it imports only Python 3.10's standard library and itself."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from testbed.deploy import bundle

SHIPPED = tuple(bundle.files())
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in SHIPPED}
ROOMS = {"analysis", "campaigns", "controllers", "hotbed", "schemas", "testbed", "workloads"}
PROGRAMS = ("testbed/sites/inventory/hostside.py", "testbed/sites/chameleon/node_setup.py")
"""Programs that sites run on a machine from standard input."""
OLDEST = (3, 10)
NEWER = {
    "tomllib": {"*"},
    "enum": {"StrEnum", "verify", "ReprEnum"},
    "datetime": {"UTC"},
    "typing": {"Self", "assert_never", "assert_type", "Never", "LiteralString", "override"},
    "asyncio": {"TaskGroup", "timeout", "Runner"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
}
"""Names missing from Python 3.10."""

# Roles that install a planner bring the distribution's numpy; the other libraries are optional.
ARRAYS = {"numpy", "scipy", "numba", "highspy"}
PLANNERS = (
    *("controllers/jit", "controllers/ursa", "controllers/prioritymeister", "controllers/research"),
    "controllers/dlr_move",
    "controllers/microstores/milp.py",
)
OWN_LIBRARY = {
    "rados": "testbed/stores/ceph",
    "swift": "testbed/stores/swift/rings.py",
    "prometheus_client": "testbed/agent/metrics.py",
}
"""Libraries installed with a store or by a role, and the only code that may use them."""


def refused(source: str, name: str) -> Iterator[str]:
    """Yield forbidden imports of the file `name`, including function-level imports."""
    tree = ast.parse(source, feature_version=OLDEST)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [(node.module or ".", alias.name) for alias in node.names]
        else:
            continue
        for module, one in imported:
            top = module.partition(".")[0]
            allowed = (
                bool({module, f"{module}.{one}"} & MODULES)
                if top in ROOMS
                else top in sys.stdlib_module_names
                or (top in ARRAYS and name.startswith(PLANNERS))
                or name.startswith(OWN_LIBRARY.get(top, "nowhere"))
            )
            newer = NEWER.get(module, set())
            if not allowed or one in newer or "*" in newer:
                yield f"{name}:{node.lineno}: {module} {one}"
            if top == "rados" and node in tree.body:
                yield f"{name}:{node.lineno}: import rados inside the function that needs it"


def test_shipped_code_needs_nothing_but_the_standard_library(root):
    assert {"schemas/errors.py", "controllers/contract.py"} <= set(SHIPPED)
    names = (*SHIPPED, *PROGRAMS)
    assert not [bad for name in names for bad in refused((root / name).read_text(), name)]
