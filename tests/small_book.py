"""A project of two notebooks and a small package, executed by the real kernel or by a papermill that only pretends."""

import copy
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import nbformat
from book_modules import shared

chapters, execution, freshness, kernel = map(shared, ("chapters", "execution", "freshness", "kernel"))
definitions = shared("definitions")

HEADER = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""
PARAMETERS = "```{code-cell} ipython3\n:tags: [parameters]\n\nruns = 10\n```\n"
PACKAGE = {
    "__init__.py": '"""A package."""\n\nfrom fedgo.star import Star\n',
    "star.py": '''"""A star."""

import csv
from pathlib import Path

LINES = 3
UNUSED = 1


class Star:
    """Sends."""

    def send(self, n):
        """The cost."""
        return n * LINES * self._factor()

    def _factor(self):
        return 1

    def receive(self):
        return 2


def arms():
    """The table."""
    with open(Path(__file__).parent / "data/arms.csv") as file:
        return list(csv.reader(file))
''',
    "other.py": '"""Nobody imports this."""\n\nx = 1\n',
    "data/arms.csv": "1,2\n",
    "data/other.csv": "3,4\n",
}


def cell(code: str) -> str:
    """A cell of a notebook's text."""
    return f"\n```{{code-cell}} ipython3\n{code}\n```\n"


TEXTS = {
    "01_a": HEADER
    + "\n# A title\n\nProse.\n\n"
    + PARAMETERS
    + cell("import fedgo\n\nprint(fedgo.Star().send(runs))"),
    "02_b": HEADER + "\n# Another\n\n" + PARAMETERS + cell("from fedgo.star import arms\n\nprint(arms())"),
}


def make(root: Path) -> SimpleNamespace:
    """The project below ``root``."""
    files = {f"fedgo/{name}": text for name, text in PACKAGE.items()}
    files |= {f"notebooks/{name}.md": text for name, text in TEXTS.items()}
    files["_toc.yml"] = (
        "- file: book/_executed/01_a\n- file: book/_executed/02_b\n# - file: book/_executed/03_c\n"
    )
    files["requirements.lock"] = "numpy==2.4.6\n"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "book").mkdir()
    return SimpleNamespace(root=root, names=[*TEXTS])


def pretend(root: Path, monkeypatch, outputs=(), seen=None) -> None:
    """From now on papermill hands every notebook back with ``outputs`` in its last cell and a record of what it used.

    ``seen`` collects the names of the notebooks, by their titles.
    """
    used = {
        "# A title": {"fedgo/__init__.py": [], "fedgo/star.py": ["Star.send", "Star._factor"]},
        "# Another": {"fedgo/__init__.py": [], "fedgo/star.py": ["arms"]},
    }

    def execute(source, path, parameters, **options):
        assert path is None
        done = copy.deepcopy(source)
        title = done.cells[0].source.splitlines()[0]
        ran = used[title]
        contents = {file: hashlib.sha256((root / file).read_bytes()).hexdigest() for file in ran}
        table = "fedgo/data/arms.csv"
        opened = {table: hashlib.sha256((root / table).read_bytes()).hexdigest()} if "other" in title else {}
        report = {
            "python": "",
            "foreign": [],
            "contents": contents,
            "ran": ran,
            "opened": opened,
            "processes": False,
            "traces": [],
        }
        done.cells[-2].outputs = [*outputs]
        done.cells[-1].outputs = [nbformat.v4.new_output("display_data", data={kernel.RECORD: report})]
        done.metadata["language_info"] = {"name": "python"}
        if seen is not None:
            seen.append(title)
        return done

    monkeypatch.setattr(execution.papermill, "execute_notebook", execute)


def execute(project, name="01_a", parameters=None, output=None) -> None:
    """Execute one notebook of the project."""
    output = output or chapters.executed_path(project.root, name)
    execution.execute(project.root, name, parameters or {}, output)


def why(project) -> dict[str, str]:
    """Why every notebook is stale, those that are."""
    now = definitions.package(project.root)
    reasons = {name: freshness.why_stale(project.root, name, now) for name in project.names}
    return {name: reason for name, reason in reasons.items() if reason}


def edit(path: Path, old: str, new: str) -> None:
    """Replace ``old``, which is there, by ``new`` in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def executed(project, name="01_a") -> dict:
    """The executed notebook as plain data."""
    return json.loads(chapters.executed_path(project.root, name).read_text())
