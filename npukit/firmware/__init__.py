"""What firmware needs of the kit: the register map, in the forms that other tools read."""
