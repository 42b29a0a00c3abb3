"""Random legal programs on simulator and RTL: every memory, counter and cycle compared."""
