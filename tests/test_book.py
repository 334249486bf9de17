"""The book's build executes what changed and nothing else, and each gate refuses the fault planted for it."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from book_modules import load

ROOT = Path(__file__).resolve().parents[1]

HEADER = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""
PARAMETERS = "```{code-cell} ipython3\n:tags: [parameters]\n\nruns = 10\n```\n"
FIGURE = {"figure": {"name": "fig-a", "caption": "A."}, "image": {"alt": "A line."}}
PNG = nbformat.v4.new_output("display_data", data={"image/png": "aaaa"})
ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])


def cell(code: str) -> str:
    return f"\n```{{code-cell}} ipython3\n{code}\n```\n"


build = load("build")


@pytest.fixture
def project(tmp_path):
    """A project of two notebooks."""
    for folder in ("notebooks", "fedgo/paper/data", "book"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "_toc.yml").write_text(
        "- file: book/_executed/01_a\n- file: book/_executed/02_b\n# - file: book/_executed/03_c"
    )
    (tmp_path / "fedgo/__init__.py").write_text("")
    (tmp_path / "fedgo/paper/data/arms.csv").write_text("1,2\n")
    (tmp_path / "requirements.lock").write_text("numpy==2.4.6\n")
    for name in ("01_a", "02_b"):
        (tmp_path / f"notebooks/{name}.md").write_text(HEADER + PARAMETERS + cell("print(runs)"))
    return SimpleNamespace(root=tmp_path, names=["01_a", "02_b"])


@pytest.fixture
def dry(project, monkeypatch):
    """The project, with a papermill that hands every notebook back without running it."""
    monkeypatch.setattr(build.papermill, "execute_notebook", lambda source, *args, **options: source)
    return project


def executed(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def set_environment(project, monkeypatch) -> None:
    """What `main` sets, until the end of the test."""
    for key, value in build.kernel_environment(project.root / "book/_executed").items():
        monkeypatch.setenv(key, value)


def run(project) -> list[str]:
    return build.execute_changed(project.root, project.names)


def test_names_come_from_the_table_of_contents(project):
    assert build.notebook_names(project.root) == ["01_a", "02_b"]
    (project.root / "notebooks/02_b.md").unlink()
    with pytest.raises(build.BuildError, match="do not exist: 02_b"):
        build.notebook_names(project.root)


def test_the_books_own_table_of_contents_names_notebooks_in_order():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.md"))]
    assert build.notebook_names(ROOT) == names


def test_second_run_executes_nothing(dry):
    assert run(dry) == ["01_a", "02_b"]
    assert run(dry) == []


@pytest.mark.parametrize(
    ("file", "again"),
    [
        ("notebooks/02_b.md", ["02_b"]),
        ("fedgo/__init__.py", ["01_a", "02_b"]),
        ("fedgo/paper/data/arms.csv", ["01_a", "02_b"]),
        ("requirements.lock", ["01_a", "02_b"]),
        ("fedgo/new.py", ["01_a", "02_b"]),
        ("README.md", []),
    ],
)
def test_a_change_executes_what_depends_on_it(dry, file, again):
    run(dry)
    with (dry.root / file).open("a") as stream:
        stream.write("\n# changed\n")
    assert run(dry) == again


def test_another_python_executes_again(dry, monkeypatch):
    run(dry)
    monkeypatch.setattr(build.platform, "python_version", lambda: "3.99.0")
    assert run(dry) == ["01_a", "02_b"]


def test_gate_stale_and_missing(dry):
    with pytest.raises(
        build.BuildError, match=r"01_a has not been executed[\s\S]*02_b has not been executed"
    ):
        build.check(dry.root, dry.names)
    run(dry)
    build.check(dry.root, dry.names)
    (dry.root / "notebooks/02_b.md").write_text(HEADER + "changed")
    with pytest.raises(build.BuildError, match="02_b changed since it was executed"):
        build.check(dry.root, dry.names)


def test_gate_truncated_output_is_not_fresh(dry):
    run(dry)
    path = dry.root / "book/_executed/01_a.ipynb"
    path.write_text(path.read_text()[:50])
    assert run(dry) == ["01_a"]


def test_gate_error_output():
    good = nbformat.v4.new_code_cell("1")
    bad = nbformat.v4.new_code_cell("\nf(x)\ng(x)", outputs=[ERROR])
    assert build.error_outputs(executed(good), "a") == []
    assert build.error_outputs(executed(good, bad), "a") == [
        "notebook a, cell 1 (f(x)): error output ValueError: no"
    ]


def test_gate_figure_without_image():
    whole = nbformat.v4.new_code_cell("plot()", metadata={"mystnb": FIGURE}, outputs=[PNG])
    bare = nbformat.v4.new_code_cell("plot()", metadata={"mystnb": FIGURE})
    assert build.missing_figures(executed(whole), "a") == []
    (fault,) = build.missing_figures(executed(whole, bare), "a")
    assert fault == "notebook a, cell 1 (plot()): declares a figure but has no image among its outputs"


def test_gate_figure_beside_another_output():
    """Every output of a figure cell becomes the figure, under one label; streams and glued values do not."""
    stream = nbformat.v4.new_output("stream", text="a\n")
    glued = nbformat.v4.new_output("display_data", data={"application/papermill.record/text/plain": "1"})
    text = nbformat.v4.new_output("execute_result", data={"text/plain": "[<Line2D>]"}, execution_count=1)
    fine = nbformat.v4.new_code_cell("plot()", metadata={"mystnb": FIGURE}, outputs=[stream, glued, PNG])
    double = nbformat.v4.new_code_cell("plot()", metadata={"mystnb": FIGURE}, outputs=[text, PNG])
    assert build.missing_figures(executed(fine), "a") == []
    (fault,) = build.missing_figures(executed(double), "a")
    assert fault == "notebook a, cell 0 (plot()): shows more than its figure; end the last line with ';'"


def test_gate_figure_without_alternative_text():
    silent = nbformat.v4.new_code_cell(
        "plot()", metadata={"mystnb": {"figure": FIGURE["figure"]}}, outputs=[PNG]
    )
    (fault,) = build.missing_figures(executed(silent), "a")
    assert fault.endswith("its figure has no mystnb.image.alt")


def plant(**changes):
    """A change of the last cell of the first executed notebook."""

    def change(root: Path) -> None:
        path = root / "book/_executed/01_a.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[-1].update(changes)
        nbformat.write(notebook, path)

    return change


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (None, "built"),
        (plant(outputs=[ERROR]), "notebook 01_a, cell 1 (print(runs)): error output ValueError: no"),
        (plant(metadata={"mystnb": FIGURE}), "cell 1 (print(runs)): declares a figure but has no image"),
        (lambda root: (root / "book/_executed/02_b.ipynb").unlink(), "notebook 02_b has not been executed"),
        (lambda root: (root / "fedgo/new.py").touch(), "notebook 01_a changed since it was executed"),
        (lambda root: (root / "book/a.md").write_text("took 3.5 s"), "book/a.md, line 1: the number '3.5'"),
    ],
)
def test_the_build_stops_at_every_gate(dry, monkeypatch, fault, message):
    """From the command line: no page is built, and the exit says why."""

    def built(root: Path) -> Path:
        sys.exit("built")

    run(dry)
    if fault:
        fault(dry.root)
    monkeypatch.setattr(build, "ROOT", dry.root)
    monkeypatch.setattr(build, "build_html", built)
    set_environment(dry, monkeypatch)
    with pytest.raises(SystemExit) as stopped:
        build.main(["--no-execute"])
    assert message in stopped.value.code


def test_gate_missing_reference(tmp_path):
    """With Jupyter Book itself: references that lead somewhere are built, and each that does not is named."""
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (tmp_path / "_config.yml").write_text(
        "title: A book\nbibtex_bibfiles: [some.bib]\nsphinx: {extra_extensions: [sphinx_proof]}\n"
    )
    (tmp_path / "some.bib").write_text("@misc{known2024, title = {A}, author = {B, C}, year = 2024}\n")
    page = tmp_path / "index.md"
    page.write_text(
        "(here)=\n# A page\n\n{ref}`here` {eq}`one` {cite:p}`known2024`\n\n"
        "```{math}\n:label: one\n1\n```\n\n```{bibliography}\n```\n"
    )
    assert build.build_html(tmp_path).is_file()
    gone = {
        "gone-ref": "{ref}`gone-ref`",
        "gone-eq": "{eq}`gone-eq`",
        "gone-fig": "{numref}`gone-fig`",
        "gone-lemma": "{prf:ref}`gone-lemma`",
        "gone2024": "{cite:p}`gone2024`",
        "gone.Class": "{py:class}`gone.Class`",
        "gone-page": "[a page](gone-page.md)",
        "gone-image": "![an image](gone-image.png)",
        "gone_number": "{glue:text}`gone_number:.1f`",
    }
    page.write_text(page.read_text() + "\n\n".join(["", *gone.values()]))
    with pytest.raises(build.BuildError) as fault:
        build.build_html(tmp_path)
    assert [name for name in gone if name not in str(fault.value)] == []


def test_the_book_silences_no_warning():
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    assert [name for name in ("suppress_warnings", "nitpick_ignore") if name in settings] == []
    ((kind, ignored),) = settings["nitpick_ignore_regex"]  # in signatures: types that have no page here
    assert kind == "py:class"
    assert re.fullmatch(ignored, "torch.Tensor")
    assert not any(
        re.fullmatch(ignored, f"fedgo.{name}") for name in ("star.Star", "confidence.Ball", "Gone")
    )


def test_gate_unknown_parameter(project, monkeypatch):
    output = project.root / "out.ipynb"
    fault = "01_a has no parameter 'run'; it has: runs"
    with pytest.raises(build.BuildError, match=fault):
        build.execute(project.root, "01_a", {"run": 5}, output)
    monkeypatch.setattr(build, "ROOT", project.root)
    set_environment(project, monkeypatch)
    with pytest.raises(SystemExit, match=fault):
        build.main(["--only", "01_a", "-p", "run", "5", "--output", str(output)])
    assert not output.exists()


def test_parameters_belong_to_a_run_outside_the_book(capsys):
    with pytest.raises(SystemExit):
        build.main(["--only", "01_problem", "-p", "runs", "5"])
    assert "-p needs --only and --output" in capsys.readouterr().err


def test_the_stamp_says_where_a_page_came_from(dry):
    run(dry)
    stamp = build.read_executed(dry.root, "01_a").metadata.fedgo
    assert stamp.parameters == {"runs": "10"}
    assert {"notebook", "package", "lock", "python", "commit", "seconds", "date"} < set(stamp)
    assert str(dry.root) not in (dry.root / "book/_executed/01_a.ipynb").read_text()


def test_a_failing_cell_keeps_the_previous_output_and_is_named(project, monkeypatch):
    """With real kernels, and a broken kernel "python3" in the user's own folder, which must not be used."""
    spec = project.root / "home/kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"argv": ["/no/such/python"], "display_name": "Python 3", "language": "python"}')
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(project.root / "home"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    set_environment(project, monkeypatch)
    source = project.root / "notebooks/01_a.md"
    output = project.root / "book/_executed/01_a.ipynb"
    code = "import os, sys\nprint(runs, os.environ['OMP_NUM_THREADS'], sys.executable)"
    source.write_text(HEADER + PARAMETERS + cell(code))

    assert build.execute_changed(project.root, ["01_a"]) == ["01_a"]
    before = output.read_bytes()
    (stream,) = build.read_executed(project.root, "01_a").cells[1].outputs
    assert stream.text == f"10 1 {sys.executable}\n"

    source.write_text(
        HEADER + PARAMETERS + "\nProse.\n" + cell("# why\nraise ValueError('runs is 10; give 20')")
    )
    with pytest.raises(build.BuildError) as fault:
        build.execute_changed(project.root, ["01_a"])
    text = "notebook 01_a failed at cell 2 (# why):\n    ValueError: runs is 10; give 20"
    assert str(fault.value) == text
    assert output.read_bytes() == before
    assert sorted(path.name for path in output.parent.iterdir() if path.suffix == ".ipynb") == ["01_a.ipynb"]

    other = project.root / "out.ipynb"
    source.write_text(HEADER + PARAMETERS + cell("print(runs)"))
    build.execute(project.root, "01_a", {"runs": 50}, other)
    assert nbformat.read(other, as_version=4).cells[-1].outputs[0].text == "50\n"
    assert output.read_bytes() == before


@pytest.mark.parametrize(
    ("prose", "refused"),
    [
        ("the regret was 241.7 after", "241.7"),
        ("it fell by 40 % or so", "40 %"),
        ("12 ± 3 on average", "± 3"),
        ("it is 20 times cheaper", "20 times"),
        ("{glue:text}`fall:.1f` % and $0.8$ at `x = 0.5`, see [a page](a-1.5.md), N = 20", None),
        ("```{code-cell} ipython3\nx = 0.123\n```\n", None),
        ("```{prf:theorem} Two\nWith probability 0.95.\n```\n", "0.95"),
    ],
)
def test_a_measurement_typed_into_prose_is_refused(prose, refused):
    faults = build.typed_measurements(f"---\nversion: 1.16\n---\n\n{prose}\n", "a.md")
    assert (refused is None and not faults) or (refused is not None and f"'{refused}'" in faults[0])
