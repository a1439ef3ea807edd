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
# # The figures of PriorityMeister
#
# Draws figures 1 and 4 to 11 of the paper, simulated or on machines, and what lies beyond them,
# from whatever runs are under `artifacts` (`hotbed run pm-quick` makes simulated ones in minutes),
# and judges every claim. The same as `hotbed report pm`; `name` may be a campaign, such as
# `pm-quick`.

# %% tags=["parameters"]
artifacts = "artifacts"  # type: str
name = "pm"  # type: str

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
# The traces' stand-ins beside Table 2, and every bound beside what was measured:

# %%
for table in report.tables:
    display(Markdown(f"**{table.title}**"), pd.DataFrame(table.as_json()))
