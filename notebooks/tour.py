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
# # A tour: from nothing to a figure
#
# Brings up a testbed, deploys a real Ceph, inspects it, runs DLR once under hotspots, and draws the
# result. On the local site it needs root and about five minutes. Every step can be repeated; it
# resumes where it stopped.

# %% tags=["parameters"]
spec = "testbed/specs/dlr.yaml"  # type: str
artifacts = "artifacts"  # type: str
hot_nodes = 4  # type: int
duration_s = 120.0  # type: float
time_scale = 0.16666666666666666  # type: float
keep = True  # type: bool

# %% [markdown]
# ## Up
# `hotbed up testbed/specs/dlr.yaml`

# %%
from campaigns.engine.campaign_file import ROOT
from testbed.deploy.roles import save_spec
from testbed.sites import open_site
from testbed.spec import load_spec

wanted = load_spec(ROOT / spec)
site = open_site(wanted.site.kind, wanted.site.options)
testbed = site.provision(wanted)
save_spec(testbed, wanted)
testbed

# %% [markdown]
# ## Deploy
# `hotbed deploy`

# %%
from testbed.deploy.deployment import bring

bring(site, testbed).sentence()

# %% [markdown]
# ## Inspect
# The store's health and every node's load, from the admin node (`hotbed top`).

# %%
from testbed.client import agent_client

agent = agent_client(testbed)
agent.call("health")

# %%
import pandas as pd

sensed = agent.call("sense", {"seconds": 2.0})
pd.DataFrame(sensed["nodes"]).T[["io_pressure", "iowait", "disk_util", "disk_read_mb_s"]]

# %% [markdown]
# ## One experiment
# Random reads while fio loads four of the eight OSD nodes, under DLR. Campaigns run the notebook
# `experiment` for this, once per cell.

# %%
from campaigns.by_hand import make_run
from campaigns.engine.display import show_run

cell = {"op": "rand", "scenario": "heterogeneity", "controller": "dlr", "hot_nodes": hot_nodes}
folder = make_run(
    {**cell, "duration_s": duration_s},
    testbed=testbed.name,
    time_scale=time_scale,
    ground=testbed.site,
    artifacts=artifacts,
)
show_run(folder)

# %% [markdown]
# ## A figure
# Disk pressure of every node, the primary affinities that DLR set, and the client's throughput.

# %%
import matplotlib.pyplot as plt

samples = pd.read_parquet(folder / "samples.parquet")
parts = {
    "pressure": "pressure, %",
    "primary_affinity": "primary affinity",
    "throughput_mb_s": "throughput, MB/s",
}
figure, axes = plt.subplots(len(parts), 1, sharex=True, figsize=(8, 8), layout="constrained")
for axis, (metric, label) in zip(axes, parts.items(), strict=True):
    series = samples[samples.metric == metric]
    for node, points in series.groupby("node"):
        axis.plot(points.t_s, points.value, label=node)
    axis.set_ylabel(label)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
axes[-1].set_xlabel("time since the workload's start, s")
# %% [markdown]
# ## Down
# `hotbed down` removes everything.

# %%
if not keep:
    site.release(testbed.name)
site.status(testbed.name)
