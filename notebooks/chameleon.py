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
# # Machines on Chameleon, and giving them back
#
# From a spec with `site: {kind: chameleon, options: {site: CHI@UC, node_type: compute_skylake}}` to
# machines that answer ssh: cost, lease, more time, and release. The same cells bring up a testbed
# on any other site; only the spec's site block differs (docs/chameleon.md).
#
# `spec` is a path below Hotbed's folder, or an absolute one.
#
# Credentials come from Chameleon's JupyterHub, or from the `OS_*` variables of the RC file on
# Chameleon's page. Never write them into a notebook. Every cell can be repeated; it resumes where
# it stopped.

# %% tags=["parameters"]
spec = "testbed/specs/dlr-kvm.yaml"  # type: str
extend_hours = 0.0  # type: float
keep = True  # type: bool

# %% [markdown]
# ## Cost
# This cell requests nothing.

# %%
from campaigns.engine.campaign_file import ROOT
from testbed.sites import open_site
from testbed.spec import load_spec

wanted = load_spec(ROOT / spec)
site = open_site(wanted.site.kind, wanted.site.options)
site.plan(wanted)

# %% [markdown]
# ## Up
# `hotbed up SPEC` creates the lease, then all servers in parallel, and waits until every node
# answers ssh. It uses an existing lease and existing servers.

# %%
from hotbed.progress import progress
from testbed.deploy.roles import save_spec
from testbed.doctor import require

require(spec=wanted)
with progress(f"up {wanted.name}") as report:
    testbed = site.provision(wanted, report)
save_spec(testbed, wanted)
testbed

# %% [markdown]
# ## The lease
# `hotbed status NAME` shows its end and the remaining node-hours.

# %%
site.status(testbed.name)

# %% [markdown]
# ## More time
# `hotbed extend NAME HOURS` extends the lease within the limits of the spec (`lease: {prolong:
# ...}`) and of the site. A campaign can extend it by itself: `hotbed run CAMPAIGN --extend-lease`
# (docs/leases.md).

# %%
if extend_hours:
    site.extend(testbed.name, extend_hours * 3600)
site.status(testbed.name)

# %% [markdown]
# ## Give it back
# `hotbed down NAME` removes everything that was created for the testbed, and nothing else. Set
# `keep` to `False`, or run the verb, as soon as you have the results: an unused lease also costs.

# %%
if not keep:
    with progress(f"down {testbed.name}") as report:
        site.release(testbed.name, report)
site.status(testbed.name)
