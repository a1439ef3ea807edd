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
# # One cell of Ursa's evaluation on a live store
#
# papermill executes this notebook once for every cell of a campaign (`hotbed run ursa-live-quick`).
# Run by hand it makes one run on a testbed that is up and deployed, below `artifacts/by-hand/`.
# Open-loop writes load a share of the OSDs more than the others (section 5.2 of the paper); when
# they have run for `balance_after_s` the controller decides. Times are the paper's; `time_scale`
# multiplies them.

# %% tags=["parameters"]
op = "open"  # type: str
scenario = "skew"  # type: str
controller = "ursa"  # type: str
controller_parameters = {"capacity": 24.0}  # type: dict
object_size = 262144  # type: int
objects_per_pg = 64  # type: int
ballast_mb = None  # type: int
rate = 24.0  # type: float
hot_share = None  # type: float
cold_share = None  # type: float
balance_after_s = None  # type: float
duration_s = 360.0  # type: float
concurrency = 16  # type: int
signal = "node"  # type: str
interval_s = 10.0  # type: float
osds = None  # type: int
seed = 1  # type: int
block = 0  # type: int
time_scale = 0.5  # type: float
ground = "local"  # type: str
testbed = "ursa-10"  # type: str
run_folder = ""  # type: str

# %%
from campaigns.papers.dlr.by_hand import close_cell, open_cell
from campaigns.papers.dlr.cell import run_cell

context = open_cell(
    {
        "op": op,
        "scenario": scenario,
        "controller": controller,
        "controller_parameters": controller_parameters,
        "object_size": object_size,
        "objects_per_pg": objects_per_pg,
        "ballast_mb": ballast_mb,
        "rate": rate,
        "hot_share": hot_share,
        "cold_share": cold_share,
        "balance_after_s": balance_after_s,
        "duration_s": duration_s,
        "concurrency": concurrency,
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
