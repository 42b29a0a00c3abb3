"""A board in Verilator: the bitstream's own design behind its pins, and what is connected to them."""
