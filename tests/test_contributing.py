"""What meets a stranger: README and CONTRIBUTING name what exists, the hooks refuse faults, the issue form is one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shell import missing_files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(ROOT.glob("*.md"))}


def wrong_links(text: str) -> list[str]:
    """Links and places of the repository that lead nowhere, and pictures without a text."""
    prose = re.sub(r"^```.*?^```|``[^\n]+?``", "", text, flags=re.DOTALL | re.MULTILINE)
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", prose) if "://" not in target]
    faults = [target for target in targets if not (ROOT / target).is_file()]
    faults += [path for span in re.findall(r"(?<!`)`([^`{}]+)`(?!`)", prose) for path in missing_files(span)]
    return faults + [
        f"{src}: '{alt}'" for alt, src in re.findall(r"!\[([^\]]*)\]\((\S+)\)", prose) if len(alt) < 20
    ]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page):
    assert wrong_links(PAGES[page]) == []


def test_the_readme_has_a_picture_that_lies_in_the_repository_and_whose_words_are_text():
    (picture,) = re.findall(r"!\[[^\]]*\]\((\S+)\)", PAGES["README.md"])
    drawing = (ROOT / picture).read_text(encoding="utf-8")
    assert "server" in re.sub(r"<[^>]*>", "", drawing)
    sizes = [int(size) for size in re.findall(r"font(?:-size)?: (\d+)px", drawing)]
    (width,) = re.findall(r'<svg [^>]*viewBox="\S+ \S+ (\d+) ', drawing)
    assert min(sizes) * 358 / int(width) > 7  # pixels on a phone of 390, indices included


def test_the_recipes_of_the_makefile_name_what_exists():
    recipes = "\n".join(
        line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line[:1] == "\t"
    )
    assert "book/build.py" in recipes
    assert missing_files(recipes) == []
    assert missing_files("$(PY) -m fedgo.tune && cat book/gone.py") == ["book/gone.py", "fedgo/tune.py"]


def test_what_leads_nowhere_is_found():
    text = "[a](gone.md) ![b](LICENSE) `fedgo/gone.py` [c](https://example.org) `fedgo/star.py`"
    assert wrong_links(text + "`` `no/file` ``\n```\nno/file\n```\n") == [
        "gone.md",
        "fedgo/gone.py",
        "LICENSE: 'b'",
    ]


# Hooks

HOOKS = {
    hook["id"]: hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]
    if repo["repo"] == "local"
}
CELL = (
    "---\njupytext: {{text_representation: {{extension: .md, format_name: myst}}}}\n"
    "kernelspec: {{display_name: Python 3, language: python, name: python3}}\n---\n\n"
    "```{{code-cell}} ipython3\n{}\n```\n"
)


@pytest.mark.parametrize(
    ("hook", "file", "good", "bad"),
    [
        ("ruff-check", "a.py", "import os\n\nprint(os)\n", "import os\n"),
        ("ruff-format", "a.py", "x = 1\n", "x=1\n"),
        ("notebooks", "a.md", CELL.format("x = 1"), CELL.format("x=1")),
    ],
)
def test_a_hook_refuses_what_is_wrong_and_nothing_else(tmp_path, hook, file, good, bad):
    program, *arguments = HOOKS[hook]["entry"].split()
    assert (HOOKS[hook]["language"], program) == ("system", ".venv/bin/python")
    for text, code in ((good, 0), (bad, 1)):
        (tmp_path / file).write_text(text)
        done = subprocess.run(
            [sys.executable, *arguments, tmp_path / file],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr


def test_every_hook_has_its_planted_fault():
    (mark,) = test_a_hook_refuses_what_is_wrong_and_nothing_else.pytestmark
    assert [case[0] for case in mark.args[1]] == list(HOOKS)


# Issue forms

FIELDS = {"input", "textarea", "dropdown", "checkboxes", "markdown"}


def wrong_form(form: dict) -> list[str]:
    """What GitHub would refuse of a form, or leave out of it."""
    faults = [key for key in ("name", "description", "body") if not form.get(key)]
    body = form.get("body", [])
    faults += [f"a field of type {field.get('type')}" for field in body if field.get("type") not in FIELDS]
    asked = [field for field in body if field.get("type") != "markdown"]
    faults += [f"{f.get('id')} has no label" for f in asked if not f.get("attributes", {}).get("label")]
    names = [field.get("id", "") for field in asked]
    faults += [f"the id '{n}'" for n in names if not re.fullmatch(r"[\w-]+", n) or names.count(n) > 1]
    required = [f for f in asked if f.get("validations", {}).get("required")]
    return faults + ["nothing is required"] * (not required)


FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.y*ml") if path.stem != "config")


def loaded(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one_that_github_shows(path):
    assert wrong_form(loaded(path)) == []


def test_a_form_asks_what_the_book_says_and_what_holds_instead():
    (form,) = (loaded(path) for path in FORMS if "claim" in path.stem)
    required = {field["id"] for field in form["body"] if field["validations"]["required"]}
    assert {"place", "said", "found"} <= required


def test_a_wrong_form_is_found():
    field = {"type": "input", "id": "a", "attributes": {"label": "A"}, "validations": {"required": True}}
    good = {"name": "A", "description": "A.", "body": [field]}
    assert wrong_form(good) == []
    assert wrong_form(good | {"name": ""}) == ["name"]
    assert wrong_form(good | {"body": [field, field]}) == ["the id 'a'"] * 2
    assert wrong_form(good | {"body": [field, field | {"id": "a b"}]}) == ["the id 'a b'"]
    assert wrong_form(good | {"body": [field | {"type": "text"}]}) == ["a field of type text"]
    assert wrong_form(good | {"body": [field | {"attributes": {}}]}) == ["a has no label"]
    assert wrong_form(good | {"body": [field | {"validations": {}}]}) == ["nothing is required"]
