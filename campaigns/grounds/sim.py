"""The ground `sim`: a testbed modelled on virtual time. It needs no testbed, root or Ceph.

A spec is its only input. If a cell names another number of OSDs, its store has that size with the
same nodes. Every cell gets its own modelled store, new and idle. Nothing needs deploying, cleaning
or locking, and cells may run in parallel.

    ground = SimulatedGround(load_spec(Path("testbed/specs/dlr.yaml")))
    ground.services(setting)                     # the steps of one cell

Results have the site kind `simulated` in a run's provenance.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.engine.identity import Sameness
from campaigns.engine.provenance import Facts, calibration
from campaigns.papers.dlr.cell import CellSetting, Services
from schemas.errors import BUILD, UserError, not_allowed
from testbed.closure import ROOT
from testbed.simulated import (
    MODEL_VERSION,
    Benchmark,
    ModelParameters,
    SimulatedCeph,
    load_parameters,
    scaled,
    sources,
)
from testbed.simulated.parameters import configuration, effective, osd_nodes
from testbed.simulated.process import PROGRAM, PROTOCOL
from testbed.simulated.store import offers
from testbed.spec import TestbedSpec, load_spec
from testbed.stores.contract import Needs

KIND = "sim"
SITE = "simulated"
"""Site kind in a run's provenance."""

SPECS = ROOT / "testbed" / "specs"
CODE = (
    *("campaigns/papers/dlr/cell.py", "campaigns/papers/dlr/simulated.py"),
    "dataplane/cmd/hotbedsim",
)
"""Entry points of a cell's code (`testbed.closure`), without the controller."""


@dataclass
class SimulatedGround:
    """A `StoreGround`. Equal fields mean equal grounds; a ground can be sent to another process.

    Attributes:
        spec: nodes, disks, links and pools.
        name: the testbed's name; by default the spec's.
        model: constants of the model in addition to the spec.

    Raises:
        UserError: the spec cannot be simulated, for example without an OSD.
    """

    spec: TestbedSpec
    name: str = ""
    model: ModelParameters = field(default_factory=ModelParameters)

    def __post_init__(self) -> None:
        self.name = self.name or self.spec.name
        configuration(self.spec, self.model, 0)

    @property
    def site(self) -> None:
        """See `StoreGround.site`."""
        return None

    def facts(self) -> Facts:
        """See `StoreGround.facts`. UserError: the simulator has not been built. StoreError: the
        simulator was built from other sources than the present ones."""
        if not PROGRAM.is_file():
            raise UserError("the simulator is missing", where=PROGRAM, do=BUILD)
        sources.require(PROGRAM.name)
        host = {"system": platform.system(), "machine": platform.machine()}
        parameters = effective(self.spec, self.model).canonical()
        return Facts(
            site=SITE,
            versions={"hotbedsim": self._version()},
            hosts={"simulator": host},
            signal="io_pressure",
            calibration={
                **calibration(self.spec),
                "simulated": True,
                "model": parameters,
                "program": hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:16],
            },
            osd_count=len(osd_nodes(self.spec)),
        )

    def offers(self) -> Needs:
        return offers(effective(self.spec, self.model))

    def services(self, setting: CellSetting) -> Services:
        from campaigns.papers.dlr.simulated import SimulatedOpenLoopServices, SimulatedServices

        osds = setting.parameters.osds
        spec = self.spec if osds is None else scaled(self.spec, osds)
        if setting.parameters.op == "open":
            return SimulatedOpenLoopServices(spec, self.model, setting)
        return SimulatedServices(spec, self.model, setting)

    def lock_path(self) -> Path | None:
        """See `StoreGround.lock_path`: two campaigns cannot disturb each other."""
        return None

    def _version(self) -> str:
        """Return the model's version; changed constants change the version."""
        text = f"model {MODEL_VERSION}, protocol {PROTOCOL}"
        if self.model == ModelParameters():
            return text
        body = json.dumps(self.model.canonical(), sort_keys=True)
        return f"{text}, parameters {hashlib.sha256(body.encode()).hexdigest()[:8]}"


def open_sim(testbed: str, spec: Path | None = None, model: Path | None = None) -> SimulatedGround:
    """Return the ground on the spec in the file `spec`. Without `spec`, `testbed` is a spec's path
    or the name of a spec of Hotbed (``dlr``). `model` is a file of constants (`load_parameters`).
    UserError: the spec or model is missing, or cannot be simulated."""
    named = Path(testbed)
    is_path = named.suffix in {".yaml", ".yml"}
    if spec is None:
        spec = named if is_path else SPECS / f"{testbed}.yaml"
        if not spec.is_file():
            known = ", ".join(sorted(path.stem for path in SPECS.glob("*.yaml")))
            raise not_allowed("spec to simulate", testbed, f"{known}, or the path of a YAML file")
    loaded = load_spec(spec)
    parameters = ModelParameters() if model is None else load_parameters(model)
    return SimulatedGround(loaded, loaded.name if is_path else testbed, parameters)


def _probe() -> str:
    """Return a digest of a small simulation that contains every part of a cell."""
    with SimulatedCeph(load_spec(SPECS / "dlr.yaml"), seed=7) as ceph:
        ceph.prefill(200, 2**22)
        ceph.start_disturbance([(0.0, {ceph.nodes[0]: None}), (1.0, {ceph.nodes[1]: 0.5})])
        ceph.start_benchmark(Benchmark("rand", duration_s=2.0), in_s=1.0)
        result = ceph.run_benchmark()
    text = f"{result.seconds!r} {result.latency_mean_s!r} {result.histogram} {result.fio_reads}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


SIMULATIONS = Sameness(
    code=CODE,
    libraries=("numpy", "pandas", "pyarrow", "pydantic"),
    program="hotbedsim",
    probe=_probe,
)
"""The libraries write a run's files, or their versions are in the files."""
