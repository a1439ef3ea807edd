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
# # Deploy a store and plan a campaign
#
# Deploys the store of the testbed's spec (after `hotbed up`, or the notebook `chameleon`), shows
# its state, and compares a campaign's time with the rest of the lease.

# %% tags=["parameters"]
testbed = ""  # type: str
campaign = "dlr-quick"  # type: str
artifacts = "artifacts"  # type: str

# %% [markdown]
# ## Select the testbed
# By name; without a name, the only one.

# %%
from testbed.choose import choose_ready

site, found = choose_ready(testbed or None)
found

# %% [markdown]
# ## Deploy
# `hotbed deploy`: a repeated call changes only what differs from the spec.

# %%
from hotbed.progress import progress
from testbed.deploy.deployment import bring

with progress(f"deploy {found.name}") as report:
    outcome = bring(site, found, report)
outcome.sentence()

# %% [markdown]
# ## State of the store

# %%
from testbed.client import agent_client

agent_client(found).call("health")

# %% [markdown]
# ## Does the campaign fit?
# `hotbed run CAMPAIGN --dry-run` lists the cells and their time. On a leased testbed it also shows
# if they end before the lease.

# %%
from campaigns.engine.campaign_file import ROOT
from campaigns.engine.session import Request, dry_run

dry_run(
    Request(campaign, testbed=found.name, ground=found.site, artifacts=ROOT / artifacts),
)
