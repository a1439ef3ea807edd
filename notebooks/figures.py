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
# # The figures of a paper
#
# Draws the figures of `paper` from the runs in `artifacts`, and judges every claim, like
# `hotbed report dlr`.
#
# | `paper` | figures | first runs |
# |---|---|---|
# | `dlr` | 1, 3 to 11, on Ceph (`dlr-sim`: simulated) | `dlr-quick` |
# | `ursa` | 1, 4 to 13, planned for clusters of any size or on Ceph | `ursa-quick` |
# | `twochoice` | 3, 4 simulated; 11 to 14, Table I on object servers | `twochoice-quick` |
# | `pm` | 1, 4 to 11, Table 2, simulated or on NFS servers | `pm-quick` |
# | `mos` | 1 to 5, 8 to 12 on microstores; 14, 15, Table 3 simulated | `mos-sim-quick` |
#
# `hotbed run CAMPAIGN` produces the runs. `paper` may also be a campaign, such as `mos-sim-quick`.
# A figure without runs names its campaign; `docs/experiments.md` lists every figure with its
# command and time.

# %% tags=["parameters"]
paper = "dlr"  # type: str
artifacts = "artifacts"  # type: str

# %%
from IPython.display import Image, Markdown, display

from analysis.core.report import build
from campaigns.engine.campaign_file import ROOT

report = build(ROOT / artifacts, paper)
report

# %%
for figure in report.figures:
    display(Markdown(f"**Figure {figure.entry.id}. {figure.entry.title}**"))
    if figure.path is None:
        display(Markdown(f"Missing: {figure.missing}"))
    else:
        display(Image(filename=str(figure.path)))

# %% [markdown]
# Each claim: the paper's value, ours with its 95 % interval, and the verdict.

# %%
import pandas as pd

columns = ["id", "figure", "statement", "paper_value", "measured", "ci95", "n", "verdict", "note"]
pd.DataFrame([claim.model_dump() for claim in report.claims])[columns]

# %% [markdown]
# The paper's tables, and results without a figure.

# %%
for table in report.tables:
    display(Markdown(f"**{table.title}**"), pd.DataFrame(table.as_json()))
