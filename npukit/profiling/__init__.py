"""Where the cycles went: a row a layer, memory over time, traces and plots."""
