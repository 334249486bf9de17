"""What has happened in a study, and the file that holds it together with the setup.

The file is JSON: ``about`` has the fields of the `Setup`; ``columns``, ``options`` (the features by the names) and
``begun`` the options; ``told`` has option, site and reward of every trial, ``open`` the option and the site of those
that were asked for and not told; ``retired``, ``plan`` and ``until`` are the fields of the `Record`. A site is "" in a
study without sites.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedgo._checks import count, number, on_cpu, require
from fedgo.beyond.advised import BEFORE, METHODS, UCB1
from fedgo.beyond.federation.wire import HUGE
from fedgo.beyond.study.setup import Options, Setup
from fedgo.beyond.surrogates.models import Surrogate

Trial = tuple[str, str]
Told = tuple[str, str, float]

_VERSION = 1
_ABOUT = (
    "trials", "noise", "method", "sites", "centre", "spread", "reach", "seed", "differ", "joined", "setting",
)  # fmt: skip
_FIELDS = ("about", "columns", "options", "begun", "retired", "open", "told", "plan", "until")


@dataclass(frozen=True)
class Record:
    """What has happened since a study began, and what is planned.

    Args:
        told: The trials whose reward is known, in the order in which they were told: option, site and reward.
        open: The trials that were asked for and not told: option and site.
        retired: The options that are not proposed again.
        plan: The options that are asked for next, in this order.
        until: A new plan is made when so many rewards are told.
    """

    told: tuple[Told, ...] = ()
    open: tuple[Trial, ...] = ()
    retired: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    until: int = 0

    @classmethod
    def of(cls, setup: Setup) -> "Record":
        """Return the record of a study that begins: the first options are its plan."""
        return cls(plan=setup.first, until=len(setup.first))


def dumps(setup: Setup, record: Record) -> str:
    """Return the text of the file that holds ``setup`` and ``record``."""
    options = dict(zip(setup.options.names, setup.options.rows, strict=True))
    about = {name: getattr(setup, name) for name in _ABOUT} | {"own": setup.surrogate is not None}
    content = {"fedgo study": _VERSION, "about": about, "columns": setup.options.columns, "options": options}
    content |= {"begun": setup.begun} | vars(record)
    return json.dumps(
        content, ensure_ascii=False, separators=(",\n", ": ")
    )  # indent= takes ten times as long


@on_cpu
def loads(text: str, surrogate: Surrogate | None = None) -> tuple[Setup, Record]:
    """Read the text of a study's file, and check every field of it.

    Args:
        text: What `dumps` made.
        surrogate: The user's own model, if the study was begun with one, which a file cannot hold.

    Raises:
        TypeError: A field is of another kind.
        ValueError: The text is no JSON, or a field is missing, unknown, or has a value that is not allowed; the message
            names it.
    """
    content = json.loads(text)
    version = content.pop("fedgo study", None) if isinstance(content, dict) else None
    require(version == _VERSION, "the version", version, f"give a study of version {_VERSION}")
    content.pop("weights", None)  # of a method that a study no longer has
    _require_fields("the file", content, _FIELDS)
    about, named = content["about"], content["options"]
    if isinstance(about, dict) and "differ" not in about:  # a study begun by an earlier fedgo
        about |= {"differ": False, "joined": 0}
    if isinstance(about, dict) and "setting" not in about:
        about["setting"] = _before(about)
    _require_fields("about", about, (*_ABOUT, "own"))
    remedy = "give the same surrogate again: a file cannot hold it"
    require(surrogate is not None or about["own"] is False, "the method", about["method"], remedy)
    require(isinstance(named, dict), "options", named, "give the features of each option by its name")
    options = Options(tuple(named), tuple(_list(content, "columns")), tuple(named.values()))
    setup = Setup(options, content["begun"], surrogate=surrogate, **{name: about[name] for name in _ABOUT})
    told = _rows(content, "told", setup.option, setup.place, checked_reward)
    opened = _rows(content, "open", setup.option, setup.place)
    retired, plan = (
        tuple(setup.option(option) for option in _list(content, name)) for name in ("retired", "plan")
    )
    require(len(set(retired)) < len(named), "retired", list(retired), "keep at least one option")
    until = count("until", content["until"], "give the number of rewards at which a plan ends", least=0)
    return setup, Record(told, opened, retired, plan, until)


def _before(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the setting of a study ``about`` which its file does not say it: the one before it knew its budget."""
    once = about.get("method") == "every arm once" and not about.get("differ")
    how = UCB1 if about.get("method") == "ucb1" else BEFORE
    return how.setting | ({"few": METHODS["every arm once"].few} if once else {})


def checked_reward(received: Any) -> float:
    """Return ``received`` as a reward: a number within ±1e100, so that no sum of them leaves float64."""
    return number("reward", received, f"give a number within ±{HUGE:g}", above=-HUGE, below=HUGE)


def _require_fields(where: str, content: Any, names: Sequence[str]) -> None:
    """Refuse ``content`` unless it is a JSON object with the fields ``names`` and no other."""
    fits = isinstance(content, dict) and set(content) == set(names)
    received = sorted(content) if isinstance(content, dict) else content
    require(fits, f"what {where} has", received, f"give {', '.join(names)}")


def _list(content: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list ``name`` of the ``content``."""
    entries = content[name]
    require(isinstance(entries, list), name, entries, "give a list")
    return list(entries)


def _rows(content: Mapping[str, Any], name: str, *checks: Callable[[Any], Any]) -> Any:
    """Return the rows of the list ``name`` as tuples: each of the ``checks`` returns one entry of a row, if it fits."""
    rows = _list(content, name)
    for row in rows:
        fits = isinstance(row, list) and len(row) == len(checks)
        require(fits, f"a row of {name}", row, f"give a list of {len(checks)} entries")
    return tuple(tuple(check(entry) for check, entry in zip(checks, row, strict=True)) for row in rows)
