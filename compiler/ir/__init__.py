"""The compiler's graph of tensors: what is computed, in which number formats, for no machine in particular."""
