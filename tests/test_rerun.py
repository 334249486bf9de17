"""The page "Re-run it": parameters every notebook has, a table from the stamps, text that opens in Binder."""

import json
import os
import subprocess
from pathlib import Path

import jupytext
import papermill
import pytest
from book_modules import load

ROOT = Path(__file__).resolve().parents[1]


for name in ("source_links", "provenance"):
    load(name, name)
runtimes = load("runtimes")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.md")), ids=lambda path: path.stem)
def test_every_notebook_has_runs_and_a_seed(path):
    assert {"runs", "seed"} <= papermill.inspect_notebook(jupytext.read(path)).keys()


def test_the_table_comes_from_the_stamps():
    stamps = {
        "01_a": {"parameters": {"clients": "20", "runs": "10"}, "seconds": 41.6},
        "02_b": {"parameters": {"runs": "3"}, "seconds": 602.7},
    }
    assert runtimes.table(stamps)[2:] == [
        "| `01_a` | [](/book/_executed/01_a.ipynb) | `runs = 10` `clients = 20` | 42\u00a0s |",
        "| `02_b` | [](/book/_executed/02_b.ipynb) | `runs = 3` | 10\u00a0min |",
        "| | all of them, one after the other | | 11\u00a0min |",
    ]


def test_binder_opens_the_text_as_notebooks(tmp_path):
    """`postBuild`, as repo2docker runs it; the second time too."""
    script = ROOT / "postBuild"
    assert os.access(script, os.X_OK)
    for _ in range(2):
        subprocess.run([script], env=os.environ | {"NB_PYTHON_PREFIX": str(tmp_path)}, check=True)
    settings = json.loads((tmp_path / "share/jupyter/lab/settings/overrides.json").read_text())
    viewers = settings["@jupyterlab/docmanager-extension:plugin"]["defaultViewers"]
    assert viewers == {"markdown": "Jupytext Notebook", "myst": "Jupytext Notebook"}


def test_outside_binder_the_script_writes_nothing():
    bare = {key: value for key, value in os.environ.items() if key != "NB_PYTHON_PREFIX"}
    done = subprocess.run([ROOT / "postBuild"], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "NB_PYTHON_PREFIX: is set by repo2docker" in done.stderr
