"""What commands in workflows and on pages name: targets of the Makefile and paths of the repository."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def missing_targets(script: str) -> list[str]:
    """Targets that ``make`` is asked for and does not have; an assignment such as FRESH=1 is none."""
    made = re.findall(
        r"^([\w./-]+(?: [\w./-]+)*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    targets = {name for names in made for name in names.split()}
    asked = re.findall(r"\bmake((?: +[A-Z]\w*=\S+)*(?: +[a-z][\w./-]*)?)", script)
    named = [word for words in asked for word in words.split() if "=" not in word]
    return [name for name in named if name not in targets]


def ignored() -> tuple[str, ...]:
    """The folders that git ignores: what is in them is made by a command."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return tuple(f"{line.rstrip('/')}/" for line in lines if line and "*" not in line)


def missing_files(script: str) -> list[str]:
    """Paths and modules of the repository that a script names and that are neither there nor made by a command."""
    named = re.findall(r"(?<![\w/@:.$-])((?:\.?\w[\w-]+/)+[\w.-]*|[\w-]+\.(?:lock|yml|toml|md|cff))", script)
    named += [f"{name.replace('.', '/')}.py" for name in re.findall(r"-m (fedgo[\w.]*)", script)]
    return [name for name in named if not f"{name}/".startswith(ignored()) and not (ROOT / name).exists()]
