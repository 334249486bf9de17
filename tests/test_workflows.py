"""The workflows on GitHub name what exists, may do no more than they need, and give no outsider's text to a shell."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("book", "weekly")
MADE = {
    "_build/fedgo.pdf",
    "_build/html",
    "_build/html/fedgo.pdf",
    "_build/html/output.txt",
    ".venv/bin/python",
}


def text(name: str) -> str:
    return (ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8")


def workflow(name: str) -> dict:
    loaded = yaml.safe_load(text(name))
    loaded["on"] = loaded.pop(True)  # YAML 1.1 reads the key `on` as a boolean
    return loaded


def steps(name: str) -> list[dict]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def commands(name: str) -> str:
    return "\n".join(step.get("run", "") for step in steps(name))


def missing_targets(script: str) -> list[str]:
    targets = re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in re.findall(r"\bmake ([\w./-]+)", script) if name not in targets]


def missing_files(script: str) -> list[str]:
    """Paths of the repository that a script names and that are neither there nor made by it."""
    named = re.findall(r"(?<![\w/@:.-])((?:\.?\w[\w-]*/)+[\w.-]+|[\w-]+\.(?:lock|yml|toml|md))", script)
    return [name for name in named if name not in MADE and not (ROOT / name).exists()]


def unpinned(used: list[str]) -> list[str]:
    return [
        action for action in used if not re.fullmatch(r"[\w-]+/[\w./-]+@(v\d+[\w.]*|[0-9a-f]{40})", action)
    ]


def injected(content: str) -> list[str]:
    """Expressions in a script whose values somebody outside may choose: titles, branches, inputs."""
    outside = r"\$\{\{[^}]*github\.(?:event\.|head_ref|ref_name)[^}]*\}\}|\$\{\{[^}]*inputs\.[^}]*\}\}"
    return re.findall(outside, content)


def test_these_are_the_workflows():
    assert sorted(path.stem for path in (ROOT / ".github/workflows").iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_workflow_names_exists(name):
    assert missing_targets(commands(name)) == []
    assert missing_files(commands(name)) == []
    for step in steps(name):
        options = step.get("with", {})
        if path := options.get("cache-dependency-path"):
            assert (ROOT / path).is_file()
        if "upload-artifact" in step.get("uses", ""):
            assert options["path"] in MADE


def test_what_is_missing_is_found():
    assert missing_targets("make book && make boko") == ["boko"]
    assert missing_files(".ci/run && .ci/runs\ncp requirements.lock requirement.lock") == [
        ".ci/runs",
        "requirement.lock",
    ]


@pytest.mark.parametrize(
    ("name", "triggers"),
    [
        ("book", {"pull_request": None, "push": {"branches": ["main"]}}),
        ("weekly", {"schedule": [{"cron": "23 4 * * 1"}], "workflow_dispatch": None}),
    ],
)
def test_triggers(name, triggers):
    assert workflow(name)["on"] == triggers


def test_permissions_are_minimal():
    """Only the job that publishes may write, and it runs nothing of the repository."""
    writing = []
    for name in NAMES:
        assert workflow(name)["permissions"] == {"contents": "read"}
        writing += [(name, job) for job, what in workflow(name)["jobs"].items() if "permissions" in what]
    assert writing == [("book", "publish")]
    publish = workflow("book")["jobs"]["publish"]
    assert publish["permissions"] == {"contents": "write"}
    assert publish["if"] == "github.event_name == 'push'"
    assert not any(
        "checkout" in step.get("uses", "") or "make" in step.get("run", "") for step in publish["steps"]
    )
    assert [name for name in NAMES if "secrets." in text(name)] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_job_ends_and_runs_are_grouped(name):
    assert "group" in workflow(name)["concurrency"]
    assert all(job["timeout-minutes"] <= 240 for job in workflow(name)["jobs"].values())


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_and_nothing_is_injected(name):
    assert unpinned([step["uses"] for step in steps(name) if "uses" in step]) == []
    assert injected(commands(name)) == []


def test_what_is_unpinned_or_injected_is_found():
    assert unpinned(["actions/checkout@v6", "actions/checkout", "actions/checkout@main"]) == [
        "actions/checkout",
        "actions/checkout@main",
    ]
    assert injected("echo ${{ github.event.pull_request.title }} ${{ github.sha }}") == [
        "${{ github.event.pull_request.title }}"
    ]


def test_only_the_change_workflow_caches():
    cached = [name for name in NAMES for step in steps(name) if "cache" in step.get("with", {})]
    assert cached == ["book"]


def test_the_deselected_test_exists():
    """`make lock` moves the lock away from environment.yml: the weekly run does without the test that compares them."""
    (file, test) = re.search(r"--deselect=(\S+)::(\w+)", text("weekly")).groups()
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")
