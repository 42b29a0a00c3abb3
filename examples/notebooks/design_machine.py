# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Design a machine for my network
#
# A configuration is a value: change fields of a preset, compile for it, simulate. Here a network is put on machines of
# several arrays, buses and numbers of VECTOR lanes.

# %%
from dataclasses import replace
from itertools import product

import altair
import pandas

import npukit
from npukit import zoo

altair.renderers.enable("svg")  # pictures, which need no network; without this line charts have tooltips and zoom

model = zoo.load("digits")
base = npukit.PRESETS["int8-8x8"]
rows = []
for array, bus, share in product((4, 8, 16), (4, 8, 16), (1, 2)):
    lanes = array // share
    config = replace(base, array=array, bus_bytes=bus, vector_lanes=lanes, fma_lanes=lanes)
    timed = npukit.profile(model, config)
    rows.append(
        {
            "array": config.size,
            "bus_bytes": bus,
            "lanes": lanes,
            "multipliers": config.array_macs,
            "cycles": timed.profile.cycles,
            "utilization": timed.profile.utilization,
            "bound": timed.to_dataframe().groupby("bound")["cycles"].sum().idxmax(),
        }
    )
machines = pandas.DataFrame(rows)
machines.sort_values("cycles").head(10)

# %% [markdown]
# Four times the multipliers are not a fourth of the cycles: tiles of a small network do not fill a large array, and the
# bus has to keep up.

# %%
altair.Chart(machines).mark_point(filled=True, size=80).encode(
    x=altair.X("multipliers:Q", scale=altair.Scale(type="log")),
    y=altair.Y("cycles:Q", scale=altair.Scale(type="log")),
    color="bus_bytes:O",
    shape="lanes:O",
    tooltip=list(machines.columns),
).properties(width=500, height=320)

# %% [markdown]
# The machine as a file for the command line, `npukit run MODEL --config machine.toml`, for its RTL in Verilator,
# `--device rtl`, and for `npukit synth`:

# %%
best = machines.sort_values(["cycles", "multipliers"]).iloc[0]
size, lanes = int(best["multipliers"] ** 0.5), int(best["lanes"])
chosen = replace(base, array=size, bus_bytes=int(best["bus_bytes"]), vector_lanes=lanes, fma_lanes=lanes)
print(chosen.to_toml())
