"""The workflows on GitHub name what exists, may do no more than they need, and give no outsider's text to a shell.

Whatever workflow is added is held to the same; which there are and when they run is nobody's promise.
"""

import re
from pathlib import Path

import pytest
import yaml
from shell import ignored, missing_files, missing_targets

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / ".github/workflows").glob("*.y*ml"))
}


def loaded(text: str) -> dict:
    """A workflow; YAML 1.1 reads the key `on` as a boolean."""
    found = yaml.safe_load(text)
    return {"on" if key is True else key: value for key, value in found.items()}


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def commands(workflow: dict) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


# Checks: each returns the faults of a workflow.


def names_nothing(workflow: dict) -> list[str]:
    """Targets, files, cache keys, artifacts and deselected tests that do not exist."""
    faults = missing_targets(commands(workflow)) + missing_files(commands(workflow))
    for step in steps(workflow):
        options = step.get("with", {})
        key, artifact = options.get("cache-dependency-path"), options.get("path", "")
        faults += [file for file in (key or "").split() if not (ROOT / file).is_file()]
        if "upload-artifact" in step.get("uses", "") and not artifact.startswith(ignored()):
            faults.append(artifact)
    for file, test in re.findall(r"--deselect[= ](\S+?)::(\w+)", yaml.safe_dump(workflow, width=10**6)):
        if not (ROOT / file).is_file() or f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8"):
            faults.append(f"{file}::{test}")
    return faults


def may_too_much(workflow: dict) -> list[str]:
    """Rights beyond reading, unless a job that runs nothing of the repository has them, on a push; and secrets."""
    faults = []
    if workflow.get("permissions") not in ({}, {"contents": "read"}):
        faults.append(f"permissions: {workflow.get('permissions')}")
    if {"pull_request_target", "workflow_run"} & set(workflow["on"]):
        faults.append("runs on an outsider's pull request with the repository's own rights")
    for name, job in workflow["jobs"].items():
        if job.get("permissions", {}) in ({}, {"contents": "read"}):
            continue
        used = " ".join(step.get("uses", "") + step.get("run", "") for step in job["steps"])
        if "push" not in job.get("if", "") or re.search(r"checkout|\bmake\b|python|\./", used):
            faults.append(f"{name} may write and runs what is in the repository, or not only on a push")
    if re.search(r"\bsecrets\.", yaml.safe_dump(workflow)):
        faults.append("reads a secret")
    return faults


def unpinned(workflow: dict) -> list[str]:
    """Actions without a version."""
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    return [a for a in used if not re.fullmatch(r"[\w-]+/[\w./-]+@(v\d+[\w.]*|[0-9a-f]{40})", a)]


def injected(workflow: dict) -> list[str]:
    """Expressions in a script whose values somebody outside may choose: titles, branches, inputs."""
    outside = r"\$\{\{[^}]*(?:github\.(?:event\.|head_ref|ref_name)|inputs\.)[^}]*\}\}"
    return re.findall(outside, commands(workflow))


def endless(workflow: dict) -> list[str]:
    """Jobs without a limit of their own, and workflows whose runs pile up."""
    faults = [name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job]
    return faults + ["concurrency"] * ("group" not in workflow.get("concurrency", {}))


def cached_though_fresh(workflow: dict) -> list[str]:
    """A workflow that asks for the newest versions takes none from a cache."""
    fresh = re.search(r"\bmake lock\b", commands(workflow))
    return [step["uses"] for step in steps(workflow) if fresh and "cache" in step.get("with", {})]


def without_engine(workflow: dict) -> list[str]:
    """Tests before which no `make engine` has run in the same job, so that those of the engine would be skipped.

    `.ci/run` stands for what it runs. `make matrix` has environments of its own, without an engine.
    """
    faults = []
    for name, job in workflow["jobs"].items():
        ran = "\n".join(step.get("run", "") for step in job["steps"])
        ran = ran.replace(".ci/run", (ROOT / ".ci/run").read_text(encoding="utf-8"))
        before, tests, _ = ran.partition("make test")
        faults += [name] * bool(tests and "make engine" not in before)
    return faults


CHECKS = (names_nothing, may_too_much, unpinned, injected, endless, cached_though_fresh, without_engine)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", TEXTS)
def test_workflow(name, check):
    assert check(loaded(TEXTS[name])) == []


def test_pull_requests_are_built_and_only_main_is_published():
    """Somewhere, in whatever file: the book from clean on every pull request, the site on a push to main."""
    workflows = [loaded(text) for text in TEXTS.values()]
    clean = [w for w in workflows if "pull_request" in w["on"] and ".ci/run" in commands(w)]
    assert clean
    publishing = [w for w in workflows if "git push" in commands(w)]
    assert publishing
    assert all(w["on"]["push"]["branches"] == ["main"] for w in publishing)


GOOD = """
on: {pull_request: null, push: {branches: [main]}}
permissions: {contents: read}
concurrency: {group: a}
jobs:
  build:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@v6
      - uses: actions/setup-python@v6
        with: {cache: pip, cache-dependency-path: requirements.lock}
      - run: make PYTHON=python3 book && .ci/run && cp _build/html/index.html requirements.lock /tmp
        env: {PYTEST_ADDOPTS: "--deselect=tests/test_workflows.py::test_workflow"}
      - uses: actions/upload-artifact@v6
        with: {path: _build/html}
  publish:
    if: github.event_name == 'push'
    timeout-minutes: 5
    permissions: {contents: write}
    steps:
      - run: git push $TOKEN ${{ github.sha }}
"""


@pytest.mark.parametrize(
    ("check", "old", "new", "fault"),
    [
        *[(check, "", "", None) for check in CHECKS],
        (names_nothing, "python3 book", "python3 boko", "boko"),
        (names_nothing, ".ci/run", ".ci/runs", ".ci/runs"),
        (names_nothing, "requirements.lock /tmp", "requirement.lock /tmp", "requirement.lock"),
        (names_nothing, "path: requirements.lock", "path: requirement.lock", "requirement.lock"),
        (names_nothing, "{path: _build/html}", "{path: build/html}", "build/html"),
        (names_nothing, "::test_workflow", "::test_gone", "tests/test_workflows.py::test_gone"),
        (names_nothing, "tests/test_workflows.py::", "tests/gone.py::", "tests/gone.py::test_workflow"),
        (may_too_much, "{contents: read}", "{contents: write}", "permissions: {'contents': 'write'}"),
        (may_too_much, "permissions: {contents: read}", "", "permissions: None"),
        (may_too_much, "pull_request:", "pull_request_target:", "an outsider's pull request"),
        (
            may_too_much,
            "  - run: git",
            "  - uses: actions/checkout@v6\n      - run: git",
            "publish may write",
        ),
        (may_too_much, "run: git push", "run: make pdf && git push", "publish may write"),
        (may_too_much, "== 'push'", "== 'pull_request'", "publish may write"),
        (may_too_much, "$TOKEN", "${{ secrets.TOKEN }}", "reads a secret"),
        (unpinned, "checkout@v6", "checkout", "actions/checkout"),
        (unpinned, "checkout@v6", "checkout@main", "actions/checkout@main"),
        (injected, "github.sha", "github.event.pull_request.title", "${{ github.event.pull_request.title }}"),
        (injected, "github.sha", "github.head_ref", "${{ github.head_ref }}"),
        (injected, "github.sha", "inputs.name", "${{ inputs.name }}"),
        (endless, "    timeout-minutes: 5\n    steps", "    steps", "build"),
        (endless, "concurrency: {group: a}", "", "concurrency"),
        (names_nothing, "path: requirements.lock", "path: requirements.lock lock", "lock"),
        (cached_though_fresh, "python3 book", "python3 book && make lock", "actions/setup-python@v6"),
        (without_engine, ".ci/run", "make test", "build"),
        (without_engine, ".ci/run", "make test && make engine", "build"),
    ],
)
def test_what_is_wrong_is_found(check, old, new, fault):
    """A good workflow, in which one thing is changed."""
    assert old in GOOD
    found = check(loaded(GOOD.replace(old, new, 1) if old else GOOD))
    assert (fault is None and not found) or any(str(fault) in text for text in found), found
