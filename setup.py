"""Build of the wheel: an installed Hotbed is the same tree of files as a clone.

Files find each other by their places in the tree, and a run's identity has these places. So the
wheel holds the tree as the folder `_hotbed`, and a .pth file with which Python imports from it.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
FOLDERS = "analysis campaigns controllers hotbed notebooks playbooks schemas testbed workloads"
FILES = ("CITATION.cff", "LICENSE", "environment.yml", "requirements.lock")
GENERATED = {"__pycache__", ".ipynb_checkpoints", ".ansible"}


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
                if file.is_file() and not GENERATED.intersection(inner.parts):
                    self.mkpath(str((tree / inner).parent))
                    self.copy_file(str(file), str(tree / inner))
        for name in FILES:
            self.copy_file(str(HERE / name), str(tree / name))
        (tree.parent / "hotbed.pth").write_text("_hotbed\n")


setup(cmdclass={"build_py": Tree})
