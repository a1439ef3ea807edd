"""The rooms and the house rules that no type checker sees, read from the source itself."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.agent import bundle

ROOT = Path(__file__).resolve().parents[1]

MAY_IMPORT = {
    "hotbed": {"campaigns", "workloads", "controllers", "testbed", "analysis", "schemas"},
    "campaigns": {"workloads", "controllers", "testbed", "schemas"},
    "workloads": {"testbed", "schemas"},
    "controllers": {"testbed", "schemas"},
    "testbed": {"schemas"},
    "analysis": {"schemas"},
    "schemas": set[str](),
}

# What runs on the admin node, with the distribution's python3 (3.10 or newer): the standard library
# and each other, nothing else. What is shipped there is listed once, by the bundle.
SHIPPED = frozenset(Path(name) for name in bundle.files(ROOT))
SHIPPED_MODULES = {
    ".".join(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts)
    for path in SHIPPED
}
AGENT_PYTHON = (3, 10)
NEWER_THAN_AGENT = {
    "tomllib": {"*"},
    "enum": {"StrEnum", "verify", "ReprEnum"},
    "datetime": {"UTC"},
    "typing": {"Self", "assert_never", "assert_type", "Never", "LiteralString", "override"},
    "asyncio": {"TaskGroup", "timeout", "Runner"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
}

# Planners work on arrays: Ursa plans for millions of partitions, PriorityMeister for traces of
# millions of requests. The role that installs one on an admin node brings the distribution's
# python3-numpy; numba and the solvers are optional there.
ARRAYS = {
    Path("controllers/jit.py"),
    Path("controllers/jit_cache.py"),
    Path("controllers/ursa"),
    Path("controllers/prioritymeister"),
    # What it says, search.py says in the standard library: controllers run without it.
    Path("controllers/microstores/milp.py"),
}
ARRAY_LIBRARIES = {"numpy", "scipy", "numba", "highspy"}

SITES = "testbed/sites"
SITE_CONTRACT = {"testbed.sites", "testbed.sites.contract", "testbed.sites.requirements"}
ASKS_SITE = re.compile(r"(^|[._])(site|site_kind|site\.kind)$")

MAX_LINES = 1000  # a file holds one idea whole; more is a smell
CODE = {".py", ".go", ".yml", ".yaml", ".sh"}
SYSTEM_FOLDERS = re.compile(
    r"bin|boot|data|dev|etc|home|lib|media|mnt|opt|proc|root|run|sbin|srv|sys"
    r"|tmp|usr|var|src|app|repo|workspace|builds|Users"
)


@cache
def _files() -> tuple[Path, ...]:
    """Every file that is or would be committed, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted(set(filter(None, listed.split("\0"))))
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def _python(*folders: str) -> list[Path]:
    return [
        path
        for path in _files()
        if path.suffix == ".py"
        and any(path == Path(folder) or Path(folder) in path.parents for folder in folders)
    ]


class Facts(NamedTuple):
    """What the rules ask of a file. Its syntax tree is not kept: trees of the whole repository are
    millions of objects, which every later garbage collection of this process would look at."""

    imports: tuple[tuple[int, str, str], ...]  # (line, module, name or ""), also inside functions
    eager: tuple[tuple[int, tuple[str, ...]], ...]  # (line, names) of imports at the top level
    asks: tuple[str, ...]  # comparisons of a site's kind with a name, and matches on it


@cache
def _facts(path: Path) -> Facts:
    return _facts_of((ROOT / path).read_text(), path)


def _facts_of(source: str, path: Path) -> Facts:
    tree = ast.parse(source, filename=str(path))
    eager = tuple(
        (node.lineno, (getattr(node, "module", None) or "", *(alias.name for alias in node.names)))
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    asks = tuple(_asks(tree, path)) if "site" in source else ()
    return Facts(tuple(_walk(tree, path)), eager, asks)


def _package(path: Path) -> list[str]:
    return list(path.parent.parts)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, also inside functions; not expressions, which are most of the nodes."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += getattr(node, field, ())


def _walk(tree: ast.Module, path: Path) -> Iterator[tuple[int, str, str]]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = _package(path)
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                yield node.lineno, base, alias.name


def _import_violations(path: Path, room: str) -> list[str]:
    found = []
    for line, module, _ in _facts(path).imports:
        top = module.split(".")[0]
        if top in MAY_IMPORT and top != room and top not in MAY_IMPORT[room]:
            found.append(f"{path}:{line}: {room} must not import {module}")
    return found


def _agent_violations(path: Path) -> list[str]:
    found = []
    for line, module, name in _facts(path).imports:
        top = module.split(".")[0]
        where = f"{path}:{line}"
        full = f"{module}.{name}" if name else module
        if top == "rados":
            if not str(path).startswith("testbed/stores/ceph"):
                found.append(f"{where}: rados is imported in testbed/stores/ceph only")
        elif top == "swift":
            # Run by the interpreter of Swift's own environment.
            if path != Path("testbed/stores/swift/rings.py"):
                found.append(f"{where}: swift is imported in testbed/stores/swift/rings.py only")
        elif top in MAY_IMPORT:
            if not {module, full} & SHIPPED_MODULES:
                found.append(f"{where}: {full} does not run on the agent side")
        elif top in ARRAY_LIBRARIES and ARRAYS & {path, *path.parents}:
            pass
        elif top not in sys.stdlib_module_names:
            found.append(f"{where}: {top} is not in the standard library")
        newer = NEWER_THAN_AGENT.get(module, set())
        if name in newer or "*" in newer:
            found.append(f"{where}: {full} is newer than Python 3.10")
    found += [
        f"{path}:{line}: import rados inside the function that needs it"
        for line, names in _facts(path).eager
        if "rados" in names
    ]
    return found


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(_is_text(item) for item in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _asks(tree: ast.Module, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            # Few comparisons are with a text, and unparsing is what takes long.
            if any(_is_text(side) for side in sides) and any(
                ASKS_SITE.search(ast.unparse(side)) for side in sides
            ):
                yield f"{path}:{node.lineno}: asks which site it is on: {ast.unparse(node)}"
        elif isinstance(node, ast.Match) and ASKS_SITE.search(ast.unparse(node.subject)):
            yield f"{path}:{node.lineno}: asks which site it is on by match"


def _site_violations(path: Path) -> list[str]:
    """Comparisons of a site's kind with a name, matches on it, imports of one site's modules."""
    found = list(_facts(path).asks)
    for line, module, name in _facts(path).imports:
        full = f"{module}.{name}"
        if module.startswith("testbed.sites.") and module not in SITE_CONTRACT:
            found.append(f"{path}:{line}: imports {module}; use testbed.sites and its contract")
        elif module == "testbed.sites" and (ROOT / full.replace(".", "/")).is_dir():
            found.append(f"{path}:{line}: imports {full}; use testbed.sites and its contract")
    return found


def _report(violations: list[str]) -> None:
    assert not violations, "\n" + "\n".join(violations)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_imports_point_one_way(room: str) -> None:
    files = _python(room)
    assert files, f"no Python file in {room}/"
    _report([text for path in files for text in _import_violations(path, room)])


def test_agent_side_is_standard_library_only() -> None:
    assert {Path("schemas/errors.py"), Path("controllers/contract.py")} <= SHIPPED
    _report([text for path in sorted(SHIPPED) for text in _agent_violations(path)])


def test_agent_side_parses_on_the_oldest_python() -> None:
    for path in sorted(SHIPPED):
        ast.parse((ROOT / path).read_text(), filename=str(path), feature_version=AGENT_PYTHON)


def test_only_sites_ask_which_site_it_is() -> None:
    files = [
        path
        for path in _python(*MAY_IMPORT, "notebooks")
        if Path(SITES) not in path.parents and "site" in (ROOT / path).read_text()
    ]
    assert files
    _report([text for path in files for text in _site_violations(path)])


def test_files_stay_small() -> None:
    long = {
        str(path): lines
        for path in _files()
        if path.suffix in CODE and Path("tests/data") not in path.parents
        for lines in [len((ROOT / path).read_text().splitlines())]
        if lines > MAX_LINES
    }
    assert not long, f"over {MAX_LINES} lines, split them: {long}"


def test_notebooks_have_no_outputs() -> None:
    for path in _files():
        if path.suffix == ".ipynb":
            cells = json.loads((ROOT / path).read_text())["cells"]
            full = [i for i, c in enumerate(cells) if c.get("outputs") or c.get("execution_count")]
            assert not full, f"{path}: cells {full} have outputs: run .venv/bin/nbstripout {path}"


def test_notebooks_have_their_text_pair() -> None:
    for path in _files():
        if path.suffix == ".ipynb":
            assert path.with_suffix(".py") in _files(), f"{path}: jupytext --sync {path}"


def _personal_paths() -> re.Pattern[str]:
    """Home folders, and where this clone lies: nothing of it may be written into the tree."""
    places = [re.escape(str(ROOT)) + r"\b"] if len(ROOT.parts) > 2 else []
    if len(ROOT.parts) == 3 and not SYSTEM_FOLDERS.fullmatch(ROOT.parts[1]):
        places.append(rf"(?<![\w.])/{re.escape(ROOT.parts[1])}/\w")
    return re.compile("|".join([r"(?<![\w.])/(?:home|Users)/[a-z][\w-]*/", *places]))


def test_no_path_of_a_developers_machine() -> None:
    pattern = _personal_paths()
    found = []
    for path in _files():
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    _report(found)


# The rules above must be able to fail: each is shown a file that breaks it.

BREAKS = {
    "imports": ("analysis/x.py", "import testbed.spec"),
    "relative": ("testbed/sites/x.py", "from ...campaigns import engine"),
    "third party": ("controllers/x.py", "import pydantic"),
    "arrays": ("controllers/dlr/x.py", "import numpy"),
    "not an array": ("controllers/ursa/x.py", "import pandas"),
    "not agent": ("testbed/stores/x.py", "from testbed.spec import TestbedSpec"),
    "engine's side": ("controllers/x.py", "from testbed.agent.client import agent_client"),
    "rados": ("controllers/x.py", "def f():\n    import rados"),
    "eager rados": ("testbed/stores/ceph/x.py", "import rados"),
    "newer": ("testbed/agent/x.py", "from enum import StrEnum"),
    "compares": ("campaigns/x.py", "if spec.site.kind == 'local': pass"),
    "compares in": ("campaigns/x.py", "if testbed.site not in ('sim', 'local'): pass"),
    "matches": ("campaigns/x.py", "match site.kind:\n    case 'local': pass"),
    "one site": ("campaigns/x.py", "from testbed.sites.local.nodes import boot"),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_broken_rule_is_seen(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, source = BREAKS[case]
    path = Path(name)
    monkeypatch.setattr(sys.modules[__name__], "_facts", lambda path: _facts_of(source, path))
    violations = _import_violations(path, path.parts[0]) + _site_violations(path)
    if any(path == Path(part) or Path(part) in path.parents for part in bundle.PARTS):
        violations += _agent_violations(path)
    assert len(violations) == 1, violations


@pytest.mark.parametrize(
    "source",
    [
        "if run.site != other.site: pass",
        "if ground == 'sim': pass",
        "from testbed.sites.contract import Site",
        "if website == 'x': pass",
    ],
)
def test_what_is_allowed_is_not_flagged(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_facts", lambda path: _facts_of(source, path))
    assert not _site_violations(Path("campaigns/x.py"))
