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
# # One cell of the DLR experiment
#
# papermill executes this notebook once for every cell of a campaign (`hotbed run dlr-quick`). Run
# by hand it makes one run on a testbed that is up and deployed, below `artifacts/by-hand/`; with
# `ground = "sim"` on one that is modelled: nothing has to be up, and the run says `simulated`.
# Times are the paper's; `time_scale` multiplies them.

# %% tags=["parameters"]
op = "seq"  # type: str
scenario = "heterogeneity"  # type: str
controller = "dlr"  # type: str
controller_parameters = {}  # type: dict
object_size = 4194304  # type: int
concurrency = 16  # type: int
duration_s = 180.0  # type: float
hot_nodes = 4  # type: int
move_every_s = 90.0  # type: float
mix = None  # type: str
spread = None  # type: float
signal = "node"  # type: str
interval_s = 20.0  # type: float
osds = None  # type: int
hot_share = None  # type: float
seed = 1  # type: int
block = 0  # type: int
time_scale = 0.16666666666666666  # type: float
ground = "local"  # type: str
testbed = "dlr"  # type: str
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
        "concurrency": concurrency,
        "duration_s": duration_s,
        # On the ground sim: a store of another size, and a share of it hot instead of a number.
        **({"hot_nodes": hot_nodes} if hot_share is None else {"hot_share": hot_share}),
        "osds": osds,
        "move_every_s": move_every_s,
        "mix": mix,
        "spread": spread,
        "signal": signal,
        "interval_s": interval_s,
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
