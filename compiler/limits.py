"""What the fields of instructions hold, as the compiler asks for it."""

from npukit.isa.instructions import Load, Matrix, Vector, field_limit

__all__ = [
    "MAX_BLOCKS",
    "MAX_CHANNELS",
    "MAX_COLUMNS",
    "MAX_COLUMN_STRIDE",
    "MAX_DILATION",
    "MAX_KERNEL",
    "MAX_PAD",
    "MAX_ROWS",
    "MAX_RUN",
    "MAX_STEP",
    "MAX_STRIDE",
]

MAX_PAD = field_limit(Load, "pad_top")
"""Rows or columns of border that a LOAD adds on one side."""
MAX_RUN = field_limit(Load, "words")
"""Words of a run that a LOAD moves."""
MAX_CHANNELS = field_limit(Matrix, "channels")
"""Channel blocks over which a MATRIX sums."""
MAX_KERNEL = field_limit(Matrix, "kernel_height")
"""Rows or columns of a kernel."""
MAX_COLUMN_STRIDE = field_limit(Matrix, "act_stride_x")
"""Words from one column to the next."""
MAX_STRIDE = field_limit(Matrix, "act_stride_y")
"""Words from one row, or one channel block, to the next."""
MAX_BLOCKS = field_limit(Vector, "blocks")
"""Channel blocks of an instruction's result."""
MAX_ROWS = field_limit(Vector, "height")
"""Rows of an instruction's result."""
MAX_COLUMNS = field_limit(Vector, "width")
"""Columns of an instruction's result."""
MAX_STEP = field_limit(Vector, "window_step")
"""Window columns from one output of a window operation to the next."""
MAX_DILATION = field_limit(Vector, "window_stride_x")
"""Words from one column of a window to the next."""
