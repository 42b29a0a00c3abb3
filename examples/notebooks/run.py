"""Run the scripts of this folder as notebooks, and write them with their results to build/notebooks."""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
BUILD = FOLDER.parent.parent / "build" / "notebooks"


def executed(script: Path) -> nbformat.NotebookNode:
    """The script as a notebook with the results of its cells.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = jupytext.read(script)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    return notebook


def main() -> None:
    """All, or those that are named."""
    BUILD.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or sorted(one.stem for one in FOLDER.glob("*.py") if one.stem != "run")
    for name in names:
        target = BUILD / f"{name}.ipynb"
        nbformat.write(executed(FOLDER / f"{name}.py"), target)
        print(target)


if __name__ == "__main__":
    main()
