# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Results ready to submit
#
# One archive of a campaign's runs, figures and claims, and the check that a reviewer makes of it
# (docs/artifacts.md). It needs no testbed, only the run folders: also when the lease on which
# they were made has ended.

# %% tags=["parameters"]
campaign = "dlr-quick"  # type: str
artifacts = "artifacts"  # type: str
about = ""  # type: str

# %% [markdown]
# ## Bundle
# `hotbed bundle CAMPAIGN`. `about` names a YAML file with title, authors and more. Known files are
# packed, with aliases for machines and people; a secret in them stops it.

# %%
from campaigns.engine.campaign_file import ROOT
from hotbed.bundling import bundle
from hotbed.progress import progress

with progress(f"bundle {campaign}") as report:
    made = bundle(
        campaign,
        artifacts=ROOT / artifacts,
        about=ROOT / about if about else None,
        progress=report,
    )
{
    "bundle": str(made.path),
    "SHA-256": made.sha256,
    "runs": made.derived.runs,
    "files": len(made.manifest.files),
    "replaced": dict(made.manifest.redacted),
    "left out": dict(made.manifest.left_out),
}

# %% [markdown]
# ## Its claims, those included that do not hold

# %%
import pandas as pd

from analysis.core.report import format_interval, format_value

pd.set_option("display.max_colwidth", None)
pd.DataFrame(
    {
        "figure": claim.figure,
        "claim": claim.statement,
        "paper": format_value(claim.paper_value, claim.unit),
        "measured": format_value(claim.measured, claim.unit),
        "95 % interval": format_interval(claim.ci95, claim.unit),
        "n": claim.n,
        "verdict": claim.verdict,
    }
    for claim in made.derived.claims
)

# %% [markdown]
# ## Verify
# `hotbed verify BUNDLE`: hashes, and all figures and claims computed again from the raw runs in
# the archive alone.

# %%
from hotbed.contained import verify

with progress(f"verify {made.path.name}") as report:
    checked = verify(made.path, progress=report)
print(checked.sentence)
pd.DataFrame(checked.checks)

# %% [markdown]
# ## Run it again
# `hotbed rerun BUNDLE --testbed NAME` runs the bundle's campaign on another testbed and compares
# the new runs with the bundled ones. On a testbed that is leased it ends and goes on as any
# campaign does (docs/leases.md).
