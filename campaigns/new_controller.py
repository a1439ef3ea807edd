"""`hotbed new controller`: write a working controller with a test, as a starting point."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from controllers.registry import available
from schemas.durable import make_folder, write_file
from schemas.errors import UserError

TEMPLATE = Path(__file__).parent / "templates" / "controller"
"""A working controller itself, called new-controller."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 40
_RESERVED = {"all", "common"}


@dataclass(frozen=True)
class NewController:
    """Written files; `directory` is the argument for --controllers-dir."""

    name: str
    directory: Path
    policy: Path
    test: Path


def new_controller(name: str, directory: Path) -> NewController:
    """Write `directory`/<name>/policy.py, and a test next to the folder; no file is overwritten.
    Names have lower-case letters, digits and - (_ becomes -). UserError: the name is invalid or
    taken, or the folder cannot be written."""
    name = name.replace("_", "-")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UserError(
            f"{name!r} is no name for a controller",
            do=(
                f"use lower-case letters, digits and -, a letter first, at most {_LONGEST} "
                "characters"
            ),
        )
    if name in _RESERVED or name in available():
        raise UserError(f"{name!r} is taken by Hotbed itself", do="choose another name")
    folder = directory / name.replace("-", "_")
    made = NewController(
        name, directory, folder / "policy.py", directory / f"test_{folder.name}.py"
    )
    for path in (folder, made.test):
        if path.exists():
            raise UserError(
                "exists already and is left as it is", where=path, do="choose another name"
            )
    make_folder(folder)
    try:
        write_file(made.policy, _named(TEMPLATE / "policy.py", name))
        write_file(made.test, _named(TEMPLATE / "test_policy.py", name))
    except BaseException:
        made.test.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return made


def _named(template: Path, name: str) -> str:
    """Return the template with every form of its name replaced."""
    words = name.split("-")
    return (
        template.read_text()
        .replace("new-controller", name)
        .replace("new_controller", "_".join(words))
        .replace("NewController", "".join(word.capitalize() for word in words))
    )
