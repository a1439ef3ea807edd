"""Closure of the code that makes a result: all files that a cell's entry points reach.

An entry is a path, relative to the repository or absolute for files outside it.

- A Python file reaches every module of the repository that it imports, in functions too, or names
  in a string (``"testbed.agent.units:units"``, ``python3 -m testbed.agent``), and the files that
  it names: those next to it (``"probe.py"``) and by their paths (``"testbed/agent/openloop"``).
- A folder of Go files is a package, and reaches every package of its module that it imports.
- Any other folder stands for all files below it (for example a role), and reaches the modules
that these files name.

Comments, docstrings and spacing of Python and Go do not count, and tests are left out. What a
notebook imports is left to other entries. Prints a digest: ``python3 -m testbed.closure ENTRY...``
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = _HERE = Path(__file__).resolve().parents[1]

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"[\w-][\w.-]*\.\w+|[\w-]+(?:/[\w-]+)+(?:\.py)?")
_GO_PACKAGE = re.compile(r"[\w.-]+(?:/[\w.-]+)+")
_MOST_KEPT = 8192
_TEST = re.compile(r"test_.*\.py|.*_test\.go")
_GO_TOKEN = re.compile(
    r'("(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\\n])+\')'  # literals, kept
    r"|(?:\s+|//(?!go:)[^\n]*|/\*.*?\*/)+",  # spacing and comments, except compiler directives
    re.DOTALL,
)


@dataclass(frozen=True)
class Closure:
    """Entry points of code, and the digest (hex) of the files they reach; "" for no entries."""

    entries: tuple[str, ...] = ()
    digest: str = ""

    @property
    def changed(self) -> bool:
        """True if the files are no longer those of the digest."""
        try:
            return bool(self.entries) and digest(self.entries) != self.digest
        except FileNotFoundError:
            return True


@cache
def first(entries: tuple[str, ...]) -> Closure:
    """Return the closure as this process first read it: imported modules do not change later."""
    return Closure(entries, digest(entries))


def digest(entries: Iterable[str]) -> str:
    """Return the SHA-256 (hex) of the closure of `entries` as it is now."""
    found = sorted(files(entries).items())
    text = "".join(f"{name}\0{_read(path).digest}\n" for name, path in found)
    _kept().save()
    return _sha(text.encode())


def newest(entries: Iterable[str]) -> str:
    """Return the name of the file that was written last, or of a missing file."""
    try:
        found = files(entries).items()
        return max((path.stat().st_mtime, name) for name, path in found)[1]
    except FileNotFoundError as error:
        return str(error.filename)


def entry(path: Path) -> str:
    """Return a file or folder as an entry; the repository's own are the same on every machine."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def files(entries: Iterable[str]) -> dict[str, Path]:
    """Return every file of the closure of `entries` by name."""
    walk = _ClosureWalk()
    for number, name in enumerate(entries):
        path = ROOT / name
        if not path.is_dir():
            walk.add(path, name if not Path(name).is_absolute() else f"{number}:{path.name}")
        elif any(path.glob("*.go")):
            walk.package(path)
        else:  # relative to the folder: a controller is the same wherever its folder is
            for file in _below(path):
                walk.add(file, f"{number}:{file.relative_to(path).as_posix()}")
    walk.follow()
    return walk.found


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        generated = any(part == "__pycache__" or part[0] == "." for part in parts)
        if path.is_file() and not generated and not _is_left_out(path):
            yield path


def _is_left_out(path: Path) -> bool:
    return path.suffix in {".pyc", ".md"} or _TEST.fullmatch(path.name) is not None


class _Source(NamedTuple):
    """A file's digest and the names in it. The file's import imports `once`; calls of its
    functions may import `called`. ``.a.b`` is relative."""

    digest: str
    once: Sequence[str] = ()
    called: Sequence[str] = ()
    mentioned: Sequence[str] = ()  # modules in strings; ``a.b.`` is every module of a package
    paths: Sequence[str] = ()  # possible names of files in strings


def _read(path: Path) -> _Source:
    return _source(path.read_bytes(), path.suffix)


class _ClosureWalk:
    """Files found, by name, and the Python files with imports that must still be followed."""

    def __init__(self) -> None:
        self.root = str(ROOT)
        self.found: dict[str, Path] = {}
        self._names: dict[str, str] = {}
        self._whole: set[str] = set()
        self._pending: list[tuple[str, bool]] = []
        self._is_file = cache(os.path.isfile)

    def add(self, path: Path, name: str | None = None, *, whole: bool = True) -> None:
        """Add a file; `whole` is False for a package on the way to one of its modules."""
        place = str(path)
        if place not in self._names:
            self._names[place] = name or os.path.relpath(place, self.root)
            self.found[self._names[place]] = path
        elif place in self._whole or not whole:
            return
        if whole:
            self._whole.add(place)
        if path.suffix != ".go":
            self._pending.append((place, whole))

    def package(self, folder: Path) -> None:
        """Add a Go package and those of its module that it imports."""
        top = next(parent for parent in folder.parents if (parent / "go.mod").is_file())
        module = (top / "go.mod").read_text().split("module ", 1)[1].split()[0]
        self.add(top / "go.mod")
        self.add(top / "go.sum")
        pending, seen = [folder], set[Path]()
        while pending:
            here = pending.pop()
            if here in seen or not here.is_dir():
                continue
            seen.add(here)
            for file in sorted(here.iterdir()):
                if file.is_file() and not _is_left_out(file):
                    self.add(file)
                    names = _read(file).once
                    pending += [
                        top / n[len(module) + 1 :] for n in names if n.startswith(f"{module}/")
                    ]

    def follow(self) -> None:
        """Add the files that the pending files reach."""
        while self._pending:
            place, whole = self._pending.pop()
            source = _read(Path(place))
            for name in (*source.once, *source.called) if whole else source.once:
                self._import(place, name)
            for name in source.mentioned if whole else ():
                self._mention(name)
            for name in source.paths if whole else ():
                folder = self.root if "/" in name else Path(place).parent
                if "." in name and self._is_file(f"{folder}/{name}"):
                    self.add(Path(folder, name))
                elif self._is_file(f"{folder}/{name}/__init__.py"):
                    for path in sorted(Path(folder, name).rglob("*.py")):
                        self.add(path)

    def _import(self, place: str, name: str) -> None:
        level = len(name) - len(name.lstrip("."))
        base = self.root if not level else str(Path(place).parents[level - 1])
        parts = name.lstrip(".").split(".")
        found = self._modules(base, parts)
        for path in found[:-1]:
            self.add(path, whole=False)
        if found:  # the last part may be a name in the module
            self.add(found[-1], whole=len(found) >= len(parts) - 1)
        elif level:  # a name in the package itself
            self.add(Path(base, "__init__.py"))

    def _mention(self, name: str) -> None:
        parts = name.rstrip(".").split(".")
        found = self._modules(self.root, parts)
        if len(found) != len(parts):
            return
        folder = found[-1].parent
        for path in sorted(folder.glob("*.py")) if name.endswith(".") else (found[-1],):
            if path.is_file():
                self.add(path)
        if found[-1].name == "__init__.py" and self._is_file(f"{folder}/__main__.py"):
            self.add(folder / "__main__.py")

    def _modules(self, base: str, parts: list[str]) -> list[Path]:
        """Return the files of `parts`, each inside the one before, as far as they exist."""
        found: list[Path] = []
        for part in parts:
            base = f"{base}/{part}"
            if self._is_file(f"{base}/__init__.py"):
                found.append(Path(base, "__init__.py"))
            else:
                if self._is_file(f"{base}.py"):
                    found.append(Path(f"{base}.py"))
                break
        return found


def _python(content: bytes) -> _Source:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # loading the file reports the error
        return _Source(_sha(content))
    # `ast.dump` differs between versions of Python, and an admin node may have another version.
    words: list[str] = []
    once, called, mentioned, paths = set[str](), set[str](), set[str](), set[str]()

    def read(node: ast.AST, imports: set[str]) -> None:
        kind = node.__class__
        words.append(kind.__name__)
        if kind in _CALLED:
            imports = called
        elif kind in _READ:
            imports = look(node, imports)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                words.append(name)
                read(value, imports)
            elif isinstance(value, list):
                items = [item for item in value if not _is_docstring(item)]
                if items:  # later versions have lists that earlier ones do not
                    words.append(name)
                    for item in items:
                        if isinstance(item, ast.AST):
                            read(item, imports)
                        else:
                            words.append(repr(item))
                    words.append("]")
            elif value is not None:
                words.append(f"{name} {value!r}")

    def look(node: ast.AST, imports: set[str]) -> set[str]:
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (f"{node.module}." if node.module else "")
            imports.update(module + alias.name for alias in node.names)
        elif isinstance(node, ast.If) and not node.orelse and _is_type_checking(node.test):
            return set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            mentioned.update(_MODULE.findall(node.value))
            if _PATH.fullmatch(node.value):
                paths.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            starts = (str(part.value) for part in node.values if isinstance(part, ast.Constant))
            mentioned.update(start for start in starts if _MODULE.fullmatch(start[:-1]))
        return imports

    read(tree, once)
    digest = _sha("\0".join(words).encode("utf-8", "surrogatepass"))
    return _Source(digest, *map(sorted, (once, called, mentioned, paths)))


_CALLED = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda}
_READ = {ast.Import, ast.ImportFrom, ast.If, ast.Constant, ast.JoinedStr}


def _is_docstring(node: ast.AST) -> bool:
    """Return True if the statement consists of a string alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _go(content: bytes) -> _Source:
    literals: list[str] = []

    def kept(match: re.Match[str]) -> str:
        if match[1]:
            literals.append(match[1][1:-1])
        return match[1] or ("\n" if "\n" in match[0] else " ")

    text = _GO_TOKEN.sub(kept, content.decode(errors="surrogateescape")).strip()
    packages = sorted({literal for literal in literals if _GO_PACKAGE.fullmatch(literal)})
    return _Source(_sha(text.encode(errors="surrogateescape")), packages)


def _text(content: bytes) -> _Source:
    named = _MODULE.findall(content.decode(errors="replace"))
    return _Source(_sha(content), mentioned=sorted(set(named)))


def _notebook(content: bytes) -> _Source:
    """Read the code cells of a notebook; their imports are left to other entries."""
    try:
        cells = json.loads(content)["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    except (ValueError, KeyError, TypeError):
        return _Source(_sha(content))
    return _Source(_python(code.encode()).digest)


_READERS: dict[str, Callable[[bytes], _Source]] = {
    ".py": _python,
    ".go": _go,
    ".mod": _go,  # its comments have the same syntax
    ".ipynb": _notebook,
}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=4096)
def _source(content: bytes, suffix: str) -> _Source:
    key = _sha(content) + suffix
    if key not in _kept():
        _kept()[key] = _READERS.get(suffix, _text)(content)
        _kept().unsaved = True
    return _Source(*_kept()[key])


class _ParseCache(dict[str, Any]):
    """Parse results by the digest of the file. Parsing a few hundred files takes a third of a
    second, so a clone keeps them. An admin node has few files and keeps nothing."""

    unsaved = False

    def save(self) -> None:
        if not self.unsaved or not (_HERE / "pyproject.toml").is_file():
            return
        self.unsaved = False
        temporary = _kept_in().with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            temporary.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(self))
            temporary.replace(_kept_in())


def _kept_in() -> Path:
    version = _sha(Path(__file__).read_bytes())[:12]
    return _HERE / ".cache" / f"closure-{version}.json"


@cache
def _kept() -> _ParseCache:
    try:
        found = json.loads(_kept_in().read_text())
    except (OSError, ValueError):
        found = {}
    return _ParseCache(found if len(found) < _MOST_KEPT else {})


if __name__ == "__main__":
    print(digest(sys.argv[1:]))
