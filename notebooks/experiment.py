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
# # One cell of an experiment
#
# A cell is one measurement: a store, a workload, a controller, and often a disturbance. A campaign
# on Ceph runs this notebook once for every cell: papermill replaces the parameters below with the
# cell's own (`hotbed run dlr-quick`). Run by hand, the notebook makes one run below
# `artifacts/by-hand/`.
#
# `cell` names the parameters that differ from their defaults; `schemas/cells/` has them all. These
# cells need a testbed that is up and deployed (`hotbed up`, `hotbed deploy`), and `kind = "dlr"`:
#
# - DLR, on the testbed `dlr`: the cell below.
# - Ursa on Ceph, on `ursa-10`:
#   `{"op": "open", "scenario": "skew", "controller": "ursa", "rate": 24.0}`
# - COSBench on Ceph's object gateway (the MOS paper's workloads), on `dlr-gateway`:
#   `{"op": "s3", "workload": "C", "workers": 16, "scenario": "heterogeneity"}`
#
# The ground `sim` needs no testbed: time is virtual, and the run is labelled `simulated`. Cells of
# kind `dlr` also run there, except on the object gateway. Every other paper has a kind for it:
#
# | paper | `kind` | `cell` |
# |---|---|---|
# | Ursa, planned for a cluster | `ursa` | `{"method": "alp", "size": "0.1K-0.1M"}` |
# | two-choice | `twochoice` | `{"scheduler": "both", "size": "1K-10K"}` |
# | PriorityMeister | `prioritymeister` | `{"scenario": "disk", "policy": "pm", "seconds": 300}` |
# | MOS | `mos` | `{"policy": "mos-pp"}` |
#
# `time_scale` multiplies the paper's times.

# %% tags=["parameters"]
kind = "dlr"  # type: str
cell = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr"}  # type: dict
ground = "local"  # type: str
testbed = "dlr"  # type: str
time_scale = 0.16666666666666666  # type: float
seed = 1  # type: int
block = 0  # type: int
run_folder = ""  # type: str

# %% [markdown]
# The cell cleans the store, starts disturbance and controller, runs the workload, stops everything
# in reverse order, and writes its folder. In a campaign, `run_folder` is the folder that the engine
# made for it.

# %%
from campaigns.by_hand import make_run

folder = make_run(
    cell,
    kind=kind,
    ground=ground,
    testbed=testbed,
    time_scale=time_scale,
    seed=seed,
    block=block,
    run_folder=run_folder,
)

# %% [markdown]
# The run's status and results. `schemas/run.py` describes every file in the folder.

# %%
from campaigns.engine.display import show_run

show_run(folder)
