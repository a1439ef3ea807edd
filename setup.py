"""Build of the wheel: an installed Hotbed is the same tree of files as a clone.

Files find each other by their places in the tree, and a run's identity has these places. So the
wheel holds the tree as the folder `_hotbed`, and a .pth file with which Python imports from it. It
holds the Go programs for this platform if `make setup` has built them in the clone.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
FOLDERS = (
    "analysis campaigns controllers dataplane hotbed notebooks playbooks schemas testbed workloads"
)
FILES = ("CITATION.cff", "LICENSE", "environment.yml", "requirements.lock")
LEFT_OUT = {"__pycache__", ".ipynb_checkpoints", ".ansible", "tests", "testdata"}
COMMANDS = {folder.name for folder in (HERE / "dataplane" / "cmd").glob("*")}


def belongs(file: Path) -> bool:
    """Return True if the wheel holds a file of the tree."""
    programs = file.parts[:2] == ("dataplane", "bin")
    unused = file.name.endswith("_test.go") or (programs and file.name not in COMMANDS)
    return (HERE / file).is_file() and not unused and not LEFT_OUT.intersection(file.parts)


class Tree(build_py):
    """Copy the tree in place of single packages."""

    def run(self) -> None:
        """Copy the tree. An editable installation imports from the clone."""
        if self.editable_mode:
            return
        tree = Path(self.build_lib, "_hotbed")
        for folder in FOLDERS.split():
            for file in sorted((HERE / folder).rglob("*")):
                inner = file.relative_to(HERE)
                if belongs(inner):
                    self.mkpath(str((tree / inner).parent))
                    self.copy_file(str(file), str(tree / inner))
        for name in FILES:
            self.copy_file(str(HERE / name), str(tree / name))
        (tree.parent / "hotbed.pth").write_text("_hotbed\n")


class Wheel(bdist_wheel):
    """Name the platform of the Go programs, if there are any, and no version of Python."""

    def finalize_options(self) -> None:
        """Take the wheel for one platform only with programs."""
        super().finalize_options()
        self.root_is_pure = not (HERE / "dataplane" / "bin").is_dir()

    def get_tag(self) -> tuple[str, str, str]:
        """Return Python, interface and platform for the wheel's name."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": Wheel, "build_py": Tree})
