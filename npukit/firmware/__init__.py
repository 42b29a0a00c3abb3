"""What firmware needs to run a model: C sources, and the register map in the forms that other tools read."""
