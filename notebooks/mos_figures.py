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
# # The figures of MOS and MOS++
#
# Draws figures 1 to 5 and 8 to 12 of the paper (microstores on machines), 14 and 15 (fifty
# machines, simulated by COSPerf), and what lies beyond them, from whatever runs are under
# `artifacts` (`hotbed run mos-sim-quick` makes simulated ones in half a minute), and judges every
# claim. The same as `hotbed report mos`; `name` may be a campaign, such as `mos-sim-quick`.

# %% tags=["parameters"]
artifacts = "artifacts"  # type: str
name = "mos"  # type: str

# %%
from IPython.display import Image, Markdown, display

from analysis.core.report import build
from campaigns.engine.campaign_file import ROOT

report = build(ROOT / artifacts, name)
report

# %%
for figure in report.figures:
    display(Markdown(f"**Figure {figure.entry.id}. {figure.entry.title}**"))
    if figure.path is None:
        display(Markdown(f"Missing: {figure.missing}"))
    else:
        display(Image(filename=str(figure.path)))

# %% [markdown]
# Each claim with the paper's value, ours with its 95 % interval, and the verdict:

# %%
import pandas as pd

columns = ["id", "figure", "statement", "paper_value", "measured", "ci95", "n", "verdict", "note"]
pd.DataFrame([claim.model_dump() for claim in report.claims])[columns]

# %% [markdown]
# Table 3, and what every policy came to in every stage, simulated:

# %%
for table in report.tables:
    display(Markdown(f"**{table.title}**"), pd.DataFrame(table.as_json()))
