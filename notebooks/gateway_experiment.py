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
# # One cell of COSBench on Ceph's object gateway
#
# papermill executes this notebook once for every cell of a campaign (`hotbed run mos-gateway`). Run
# by hand it makes one run on a testbed that is up and deployed with an object gateway
# (`testbed/specs/dlr-gateway.yaml`), below `artifacts/by-hand/`. Times are those of the DLR paper;
# `time_scale` multiplies them.

# %% tags=["parameters"]
op = "s3"  # type: str
workload = "C"  # type: str
workers = 16  # type: int
scenario = "heterogeneity"  # type: str
controller = "dlr"  # type: str
controller_parameters = {}  # type: dict
duration_s = 180.0  # type: float
hot_nodes = 4  # type: int
move_every_s = 90.0  # type: float
signal = "node"  # type: str
interval_s = 20.0  # type: float
osds = None  # type: int
hot_share = None  # type: float
seed = 1  # type: int
block = 0  # type: int
time_scale = 0.16666666666666666  # type: float
ground = "local"  # type: str
testbed = "dlr-gateway"  # type: str
run_folder = ""  # type: str

# %%
from campaigns.papers.dlr.by_hand import close_cell, open_cell
from campaigns.papers.dlr.cell import run_cell

context = open_cell(
    {
        "op": op,
        "workload": workload,
        "workers": workers,
        "scenario": scenario,
        "controller": controller,
        "controller_parameters": controller_parameters,
        "duration_s": duration_s,
        **({"hot_nodes": hot_nodes} if hot_share is None else {"hot_share": hot_share}),
        "move_every_s": move_every_s,
        "signal": signal,
        "interval_s": interval_s,
        "osds": osds,
    },
    ground=ground,
    testbed=testbed,
    run_folder=run_folder,
    seed=seed,
    block=block,
    time_scale=time_scale,
)

# %%
run = run_cell(None, context)
folder = close_cell(context)

# %%
from campaigns.engine.display import show_run

show_run(folder)
