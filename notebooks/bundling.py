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
# Packs a campaign's runs, figures and claims into one archive and checks it as a reviewer does
# (docs/artifacts.md). It needs only the run folders, no testbed: the lease may have ended.

# %% tags=["parameters"]
campaign = "dlr-quick"  # type: str
artifacts = "artifacts"  # type: str
about = ""  # type: str

# %% [markdown]
# ## Bundle
# `hotbed bundle CAMPAIGN`. `about` names a YAML file with title, authors and more. Known files are
# packed, with aliases for machines and people. A secret in them is an error.

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
# ## All claims, also those that do not hold

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
# `hotbed verify BUNDLE` checks hashes and recomputes all figures and claims from the raw runs in
# the archive.

# %%
from hotbed.contained import verify

with progress(f"verify {made.path.name}") as report:
    checked = verify(made.path, progress=report)
print(checked.sentence)
pd.DataFrame(checked.checks)

# %% [markdown]
# ## Run it again
# `hotbed rerun BUNDLE --testbed NAME` runs the bundle's campaign on another testbed and compares
# the new runs with the bundled ones. If the lease ends first, the same command resumes on a new
# lease (docs/leases.md).
