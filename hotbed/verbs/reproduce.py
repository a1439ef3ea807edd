"""`hotbed reproduce`: from a bare machine to the claims table; resumes where it stopped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.alone import alone_on
from hotbed.exit_codes import resumable, stopped, unfinished
from hotbed.options import named, option
from hotbed.output import Output
from hotbed.progress import progress

if TYPE_CHECKING:
    from testbed.sites.contract import Site, Testbed

SPEC = "testbed/specs/dlr.yaml"
CAMPAIGN = "dlr-quick"


def verb(
    *,
    keep: bool = named("--keep", "Keep the testbed at the end.", False),
    artifacts: Path = option("Where results go.", Path("artifacts")),
) -> Output:
    """DLR against its baselines on a real Ceph: testbed, campaign, report, claims."""
    from analysis.core.report import build
    from campaigns.engine import session
    from campaigns.engine.campaign_file import ROOT
    from hotbed.verbs.report import claims_table
    from schemas.durable import make_folder
    from testbed.deploy.roles import save_spec
    from testbed.doctor import require
    from testbed.sites import open_site
    from testbed.spec import load_spec
    from testbed.terminal import is_quiet

    make_folder(artifacts / CAMPAIGN)  # fail before minutes of building
    spec = load_spec(ROOT / SPEC)
    request = session.Request(CAMPAIGN, artifacts=artifacts)
    known = session.dry_run(request)
    if known.done < known.cells:
        require(spec=spec)
    site = open_site(spec.site.kind, spec.site.options)
    held = partial(alone_on, site.folder(spec.name), spec.name)
    if known.done < known.cells:
        with held(), resumable():
            with progress(f"up {spec.name}") as report:
                testbed = site.provision(spec, report)
            save_spec(testbed, spec)
            _deploy(site, testbed)
        result = session.run(request)
        if stopped(result) is not None:
            return unfinished(result)
        ok, sentence = result.ok, result.sentence
    else:
        ok, sentence = True, f"{CAMPAIGN}: all {known.cells} runs were done before."
    made = build(artifacts, CAMPAIGN)
    # A failure can be inspected on the testbed, and the next call resumes there.
    if ok and not keep and site.find(spec.name) is not None:
        with held(), progress(f"down {spec.name}") as report:
            site.release(spec.name, report)
    facts = {"ok": ok, "sentence": sentence, "report": made.path}
    facts |= {"claims_json": made.claims_path, "claims": list(made.claims)}
    lines = [sentence] if ok or is_quiet() else []  # otherwise the progress reported the failure
    lines.append(f"Report: {made.path.resolve()}")
    return Output(facts, lambda: [claims_table(made.claims), *lines], code=int(not ok))


def _deploy(site: Site, testbed: Testbed) -> None:
    """Deploy, unless a healthy store with our present code exists."""
    from campaigns.grounds.testbed import deployed
    from testbed.deploy import deployment

    if deployed(testbed):
        return
    with progress(f"deploy {testbed.name}") as report:
        deployment.bring(site, testbed, report)
