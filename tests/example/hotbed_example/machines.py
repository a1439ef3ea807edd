"""Site of machines that a lab lends; only `plan` and `names` are written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.sites.contract import Cost, Progress, SiteError, State, Status, Testbed, silent
from testbed.sites.records import default_root
from testbed.spec import TestbedSpec


class LentSite:
    kind = "lent"

    def __init__(self, options: Mapping[str, object]) -> None:
        self.options = options

    def plan(self, spec: TestbedSpec) -> Cost:
        return Cost(0.0, len(spec.node_names()), 0, 0, f"{len(spec.node_names())} lent machines")

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        raise SiteError("nobody lends a machine today")

    def status(self, name: str) -> Status:
        return Status(State.ABSENT, "no machines")

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        return None

    def folder(self, name: str) -> Path:
        return default_root() / "sites" / self.kind / name

    def names(self) -> Sequence[str]:
        return ()

    def extend(self, name: str, seconds: float) -> Status:
        return self.status(name)

    def release(self, name: str, progress: Progress = silent) -> None:
        progress("removed", 1.0)
