"""Whether an executed notebook still is what executing it today would give, and if not, why.

Its metadata hold a stamp (`metadata.fedgo`): a seal for every cell and its outputs, the parameters, the Python, the
lock, the definitions of the package that the kernel used, what it read of the tree, and the stored traces. All of it is
compared; edits of prose, captions, comments, docstrings and layout change none of it.
"""

import hashlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chapters
import definitions
import nbformat


def sha256(path: Path) -> str:
    """Hash of a file; that of none is no hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


def python() -> str:
    """The interpreter, as far as results may depend on it."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def commit(root: Path) -> str:
    """The commit the sources are at, with `+` where they differ from it; empty outside a git repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def used(report: Mapping[str, Any], cells: Sequence[Any], before: definitions.Package) -> definitions.Used:
    """The definitions that a kernel used, by its ``report``, as they were ``before`` it started."""
    everything = {file: [*module.entries] for file, module in before.items()}
    ran = everything if report["processes"] else report["ran"]  # nobody knows what ran in another process
    found = definitions.used(ran, [cell.source for cell in cells], before)
    for file, content in report["contents"].items():
        if file not in before or before[file].content != content:
            found[file] = {"": definitions.CHANGING}
    return found


def stamp(
    root: Path,
    run: Sequence[Any],
    parameters: Mapping[str, str],
    report: Mapping[str, Any],
    before: definitions.Package,
) -> dict[str, Any]:
    """What is remembered of a run: its executed cells, its parameters, and what its kernel says it used."""
    found = used(report, run, before)
    parts = [f"{file} {name} {value}" for file, entries in found.items() for name, value in entries.items()]
    return {
        "cells": [chapters.seal(cell) for cell in run],
        "parameters": dict(parameters),
        "python": python(),
        "lock": sha256(root / "requirements.lock"),
        "package": definitions.code.digest(parts),
        "used": found,
        "read": dict(report["opened"]),
        "traces": list(report["traces"]),
    }


def why_stale(root: Path, name: str, now: definitions.Package) -> str:
    """Why notebook ``name`` has to be executed, ``now`` being what the package defines; empty if it need not."""
    path = chapters.executed_path(root, name)
    if not path.exists():
        return "has not been executed"
    executed = chapters.read_executed(path)
    if executed is None:
        return "what was executed cannot be read"
    try:
        return _difference(root, chapters.read_text(root, name), executed, now)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "its stamp cannot be read"


def _difference(root: Path, text: Any, executed: Any, now: definitions.Package) -> str:
    stamp = executed.metadata["fedgo"]
    run = chapters.code_cells(executed)
    cells = chapters.code_cells(text)
    if len(run) != len(cells) or len(run) != len(stamp["cells"]):
        return f"it has {len(cells)} cells with code, the executed one {len(run)} of {len(stamp['cells'])}"
    for index, (cell, ran, sealed) in enumerate(zip(cells, run, stamp["cells"], strict=True)):
        if chapters.meaning(cell) != chapters.meaning(ran):
            return f"code {chapters.where(index, cell.source)} changed"
        if chapters.seal(ran) != sealed:
            return f"code {chapters.where(index, cell.source)}: its outputs were changed after the run"
    if dict(stamp["parameters"]) != chapters.parameters(text):
        return f"it was executed with the parameters {dict(stamp['parameters'])}"
    if stamp["python"] != python():
        return f"it was executed by {stamp['python']}, and this is {python()}"
    if stamp["lock"] != sha256(root / "requirements.lock"):
        return "requirements.lock changed"
    if reason := definitions.changed(stamp["used"], now):
        return reason
    for file, content in stamp["read"].items():
        if sha256(root / file) != content:
            return f"{file}, which it reads, changed"
    for trace in stamp["traces"]:
        package = root / definitions.PACKAGE
        if definitions.code.code(trace["modules"], trace["files"], package) != trace["code"]:
            return f"the code of its stored trace of {trace['algorithm']} on {trace['problem']} changed"
    return ""


def refresh(root: Path, name: str) -> Any:
    """Put today's text around the outputs of notebook ``name``, which is fresh; return it."""
    path = chapters.executed_path(root, name)
    executed = chapters.read_executed(path)
    stamp = executed.metadata["fedgo"]
    stamp["notebook"] = sha256(chapters.text_path(root, name))
    metadata = {"language_info": executed.metadata["language_info"], "fedgo": stamp}
    whole = chapters.joined(chapters.read_text(root, name), chapters.code_cells(executed), metadata)
    chapters.write(path, nbformat.writes(whole) + "\n")
    return whole
