"""Registry of controllers: finds a controller's folder, creates its policy, hashes its code.

Built-in controllers are the folders of this package that hold a `policy.py`. Another directory of
such folders (or one such folder) can be given in addition, and installed packages can have others
(`schemas.extensions`). A folder has the controller's name, with ``_`` for ``-``: ``dlr-pg`` is in
``dlr_pg``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from controllers import confine
from controllers.contract import LoopPolicy
from schemas import extensions
from schemas.errors import UserError, unknown
from testbed import closure
from testbed.closure import Closure, first
from testbed.stores.contract import Needs

BUILT_IN = Path(__file__).parent
FOREIGN = ".foreign"
"""File in the folder of a controller that came with a bundle: its code runs only confined."""


@dataclass(frozen=True)
class Controller:
    """Controller that was found: its name, its folder, and its origin."""

    name: str
    folder: Path
    outside: bool

    @property
    def foreign(self) -> bool:
        """True if the code is foreign and the user has not adopted it."""
        return (self.folder / FOREIGN).exists()


def available(controllers_dirs: Sequence[Path] = ()) -> dict[str, Controller]:
    """Return every controller by name; a given one takes the place of an installed one.

    Raises:
        UserError: a given directory is missing or has no controllers, two share a name, or the
            controller of an installed package is not there.
    """
    found = _without_packages(controllers_dirs)
    own = {name for name, one in found.items() if not one.outside}
    for name, entry in extensions.installed("controller", own).items():
        folder = extensions.place(entry)
        if folder.name.replace("_", "-") != name or not (folder / "policy.py").is_file():
            raise UserError(
                f"{folder} is not a folder of that name with a policy.py",
                where=f"installed controller {name}",
                do="repair or uninstall its package",
            )
        found.setdefault(name, Controller(name, folder.resolve(), outside=True))
    return found


def _without_packages(controllers_dirs: Sequence[Path]) -> dict[str, Controller]:
    found = {c.name: c for c in _in_directory(BUILT_IN, outside=False)}
    for directory in controllers_dirs:
        if not directory.is_dir():
            raise UserError(f"controllers directory {directory}: there is no such directory")
        several = list(_in_directory(directory, outside=True))
        if not several:
            raise UserError(f"controllers directory {directory}: no folder in it has a policy.py")
        for controller in several:
            if controller.name in found:
                raise UserError(
                    f"controller {controller.name} in {controller.folder} has the name of the "
                    f"one in {found[controller.name].folder}",
                    do="rename its folder",
                )
            found[controller.name] = controller
    return found


def _in_directory(directory: Path, *, outside: bool) -> Iterator[Controller]:
    folders = [directory] if (directory / "policy.py").is_file() else sorted(directory.iterdir())
    for folder in folders:
        if (folder / "policy.py").is_file():
            resolved = folder.resolve()
            yield Controller(resolved.name.replace("_", "-"), resolved, outside)


def find(name: str, controllers_dirs: Sequence[Path] = ()) -> Controller:
    """Return the controller called `name`; raise UserError with the known names if absent."""
    key = name.replace("_", "-")
    found = _without_packages(controllers_dirs).get(key)  # saves each cell a look at all packages
    if found is None and (found := (known := available(controllers_dirs)).get(key)) is None:
        raise no_controller(name, known)
    return found


def no_controller(name: str, known: Iterable[str], where: str = "") -> UserError:
    """Return the mistake of a `name` that no controller has."""
    more = " (more with --controllers-dir)"
    return unknown("controller", name, sorted(known), where=where, more=more)


def create(controller: Controller, parameters: Mapping[str, object], seed: int) -> LoopPolicy:
    """Create the policy, its parameters validated.

    Raises:
        UserError: the module does not load, has no `create`, or refuses the parameters.
    """
    module = _load(controller)
    factory = getattr(module, "create", None)
    if not callable(factory):
        raise UserError(
            f"{controller.folder / 'policy.py'} defines no create(parameters, seed)",
            where=f"controller {controller.name}",
        )
    try:
        policy = factory(dict(parameters), seed)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"controller {controller.name} could not be created with {dict(parameters)}: "
            f"{describe(error)}"
        ) from error
    _check_policy(controller, policy)
    checked: LoopPolicy = policy
    return checked


def refuse_unoffered(name: str, needs: Needs, offers: Needs, store: str) -> None:
    """Raise UserError if `store` does not offer all needs of the controller `name`."""
    senses = sorted(needs.senses - offers.senses)
    acts = sorted(needs.acts - offers.acts)
    lacking = [f"sense {name}" for name in senses] + [f"change {name}" for name in acts]
    if lacking:
        raise UserError(
            f"controller {name} cannot run on this {store} store, which cannot "
            f"{' nor '.join(lacking)}"
        )


def code_of(controller: Controller) -> Closure:
    """Return the controller's files except tests, and their imports. A folder outside this package
    is read each time, as it is also loaded anew."""
    entries = (closure.entry(controller.folder),)
    return Closure(entries, closure.digest(entries)) if controller.outside else first(entries)


def code_hash(controller: Controller) -> str:
    """Return the SHA-256 (hex) of the controller's present code; see `code_of`."""
    return closure.digest((closure.entry(controller.folder),))


def describe(error: BaseException) -> str:
    """Return one line for an exception raised by a controller's code, with its place."""
    message = " ".join(str(error).split()) or "no message"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message}{place}"


def _load(controller: Controller) -> ModuleType:
    try:
        if not controller.outside:
            return importlib.import_module(f"controllers.{controller.folder.name}.policy")
        return _load_outside(controller)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{controller.folder / 'policy.py'} does not load: {describe(error)}",
            where=f"controller {controller.name}",
        ) from error


def _load_outside(controller: Controller) -> ModuleType:
    """Import a folder that is on no path as its own package: ``from .x import y`` works.

    The package's name holds a hash of the folder's path, so that two folders never mix.

    Raises:
        UserError: the controller is foreign, and this process is not confined.
    """
    if controller.foreign and not confine.entered:
        raise UserError(
            f"controller {controller.name} came with a bundle: its code runs in a confined "
            "process only",
            do=f"delete {controller.folder / FOREIGN} to make it your own",
        )
    mark = hashlib.sha256(str(controller.folder).encode()).hexdigest()[:12]
    package = f"hotbed_controller_{mark}"
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]  # the files may have changed since
    init = controller.folder / "__init__.py"
    if init.is_file():
        spec = importlib.util.spec_from_file_location(
            package, init, submodule_search_locations=[str(controller.folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        spec.loader.exec_module(module)
    else:
        module = ModuleType(package)
        module.__path__ = [str(controller.folder)]
        sys.modules[package] = module
    importlib.invalidate_caches()
    return importlib.import_module(f"{package}.policy")


def _check_policy(controller: Controller, policy: object) -> None:
    wanted = {"name": str, "needs": Needs}
    wrong = [
        name for name, kind in wanted.items() if not isinstance(getattr(policy, name, None), kind)
    ]
    wrong += [
        f"{name}()"
        for name in ("parameters", "initial", "decide")
        if not callable(getattr(policy, name, None))
    ]
    if wrong:
        raise UserError(
            f"the policy that create() returns lacks {', '.join(wrong)} (see "
            "controllers/contract.py)",
            where=f"controller {controller.name}",
        )
    name = str(policy.name)  # type: ignore[attr-defined]
    if name != controller.name:
        raise UserError(
            f"its policy calls itself {name!r}; the name must be the folder's, with - for _",
            where=f"controller {controller.name}",
        )
