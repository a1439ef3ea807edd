# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A store on a testbed, and whether a campaign fits
#
# Deploys the store of the spec that the testbed was brought up from (`hotbed up`, or the notebook
# `chameleon`), looks at it, and compares the time of a campaign with what is left of the lease.

# %% tags=["parameters"]
testbed = ""  # type: str
campaign = "dlr-quick"  # type: str
artifacts = "artifacts"  # type: str

# %% [markdown]
# ## Which testbed
# By its name; without one the only one there is.

# %%
from testbed.choose import choose_ready

site, found = choose_ready(testbed or None)
found

# %% [markdown]
# ## Deploy
# `hotbed deploy`: a repeated call changes only what is not as it should be.

# %%
from hotbed.progress import progress
from testbed.deploy.deployment import bring

with progress(f"deploy {found.name}") as report:
    outcome = bring(site, found, report)
outcome.sentence()

# %% [markdown]
# ## What the store says of itself

# %%
from testbed.client import agent_client

agent_client(found).call("health")

# %% [markdown]
# ## Does the campaign fit?
# `hotbed run CAMPAIGN --dry-run`: the cells, their time, and, where the testbed is leased, whether
# they end before the lease does.

# %%
from campaigns.engine.campaign_file import ROOT
from campaigns.engine.session import Request, dry_run

dry_run(
    Request(campaign, testbed=found.name, ground=found.site, artifacts=ROOT / artifacts),
)
