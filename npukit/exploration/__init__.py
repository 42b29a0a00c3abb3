"""The design space: which machine for some models, by cycles, area, energy and on-chip memory."""
