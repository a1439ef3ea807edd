"""What came of checking a bundle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from analysis.bundle.differences import Difference
from schemas.bundle import Manifest


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `ok` None where it could not be, or does not count."""

    name: str
    ok: bool | None
    detail: str


@dataclass
class Verification:
    """What came of it. `ok`: no check failed."""

    path: Path
    sha256: str
    manifest: Manifest
    checks: list[Check] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return all(check.ok is not False for check in self.checks)

    @property
    def sentence(self) -> str:
        """The result in a line."""
        failed = [check.name for check in self.checks if check.ok is False]
        if failed:
            return f"{self.path.name}: does not hold ({', '.join(failed)})."
        files = len(self.manifest.files)
        return (
            f"{self.path.name}: {files} files, and all that follows from the runs, are as stated."
        )

    def record(self, name: str, found: Iterable[Difference], good: str) -> None:
        """A check that fails with any difference."""
        more = list(found)
        self.differences += more
        self.checks.append(Check(name, not more, f"{len(more)} differences" if more else good))
