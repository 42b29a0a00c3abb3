"""`python -m npukit.cli`: the same as `python -m npukit`."""

import sys

from npukit.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
