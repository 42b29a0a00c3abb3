"""`python -m npukit`: the command line without an installed script."""

import sys

from npukit.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
