"""Front ends: models of frameworks become graphs of the IR."""
