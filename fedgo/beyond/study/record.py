"""The record of what has happened in a study, and the file that holds it together with the setup.

The file is JSON. ``about`` has the fields of the `Setup`; ``columns``, ``options`` (the features of each option by its
name) and ``begun`` have the options. ``told`` has the option, the site and the reward of every trial whose reward is
known, and ``open`` the option and the site of every trial that was asked for and whose reward is not known.
``retired``, ``plan`` and ``until`` are the fields of the `Record`. A site is "" in a study without sites.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from fedgo._checks import count, require
from fedgo.beyond.advised import BEFORE, METHODS, UCB1
from fedgo.beyond.federation.wire import checked_reward
from fedgo.beyond.study.setup import Options, Setup
from fedgo.beyond.surrogates.models import Surrogate

Trial = tuple[str, str]
Told = tuple[str, str, float]

_VERSION = 1
_ABOUT = [each.name for each in fields(Setup) if each.name not in ("options", "begun", "surrogate")]
_FIELDS = ["fedgo study", "about", "columns", "options", "begun", "retired", "open", "told", "plan", "until"]


@dataclass(frozen=True)
class Record:
    """What has happened since a study began, and what is planned.

    Args:
        told: The option, the site and the reward of each trial whose reward is known, in the order of their entry.
        open: The option and the site of each trial that was asked for and whose reward is not known.
        retired: The options that are not proposed again.
        plan: The options that are asked for next, in this order.
        until: The number of known rewards from which on the next request for a trial makes a new plan.
    """

    told: tuple[Told, ...] = ()
    open: tuple[Trial, ...] = ()
    retired: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    until: int = 0

    @classmethod
    def of(cls, setup: Setup) -> "Record":
        """Return the record of a study that begins with ``setup``; its plan is the first options of the setup."""
        return cls(plan=setup.first, until=len(setup.first))


def dumps(setup: Setup, record: Record) -> str:
    """Return the JSON text of the file that holds ``setup`` and ``record``."""
    about, options = {name: getattr(setup, name) for name in _ABOUT}, setup.options
    content = {"fedgo study": _VERSION, "about": about, "columns": options.columns, "begun": setup.begun}
    content["options"] = dict(zip(options.names, options.rows, strict=True))
    # one entry a line; `indent` would take ten times as long
    return json.dumps(content | vars(record), ensure_ascii=False, separators=(",\n", ": "))


def loads(text: str, surrogate: Surrogate | None = None) -> tuple[Setup, Record]:
    """Return the setup and the record that the text of a study's file holds, after a check of every field.

    Args:
        text: The text that `dumps` returned. A field of the setup that earlier versions of fedgo did not have may be
            missing.
        surrogate: The user's own model, if the study was begun with one, because a file cannot hold it.

    Raises:
        TypeError: A field is of another kind.
        ValueError: The text is not JSON, or a field is missing, unknown, or has a value that is not allowed; the
            message names it.
    """
    # files of a method that was removed may have "weights"
    content = _fields("the file", json.loads(text), _FIELDS, {"weights"})
    require(content["fedgo study"] == _VERSION, "the version", content["fedgo study"], f"give {_VERSION}")
    about = _fields("about", content["about"], {"trials", "noise"}, {*_ABOUT, "own"})
    named = content["options"]
    require(isinstance(named, dict), "options", named, "give the features of each option by its name")
    options = Options(tuple(named), content["columns"], tuple(named.values()))
    about = {"setting": _before(about)} | {name: about[name] for name in _ABOUT if name in about}
    setup = Setup(options, content["begun"], surrogate=surrogate, **about)
    rows = _rows(content, "told", 3)
    told = tuple((setup.option(row[0]), setup.place(row[1]), checked_reward(row[2])) for row in rows)
    opened = tuple((setup.option(row[0]), setup.place(row[1])) for row in _rows(content, "open", 2))
    retired, plan = (tuple(map(setup.option, _rows(content, name))) for name in ("retired", "plan"))
    require(len(set(retired)) < len(named), "retired", list(retired), "keep at least one option")
    until = count("until", content["until"], "give the number of rewards at which a plan ends", least=0)
    return setup, Record(told, opened, retired, plan, until)


def _before(about: dict[str, Any]) -> dict[str, Any]:
    """Return the setting of a study whose file does not contain it, that is, of a study from an earlier version of
    fedgo.

    It is the setting before it depended on the budget. ``about`` has the fields of the study's setup.
    """
    once = about.get("method") == "every arm once" and not about.get("differ")
    how = UCB1 if about.get("method") == "ucb1" else BEFORE
    return how.setting | ({"few": METHODS["every arm once"].few} if once else {})


def _fields(where: str, content: Any, names: Collection[str], others: Collection[str]) -> dict[str, Any]:
    """Return the ``content`` if it is a JSON object with all fields in ``names``, and with no others but those in
    ``others``.

    ``where`` says in the ``ValueError`` which object it is.
    """
    found = content if isinstance(content, dict) else {}
    fits = set(names) <= set(found) <= {*names, *others}
    require(fits, f"what {where} has", list(found), f"give {', '.join(sorted({*names, *others}))}")
    return found


def _rows(content: dict[str, Any], name: str, length: int = 0) -> list[Any]:
    """Return the list ``name`` of the ``content``, or raise a ``ValueError`` if it is not a list.

    Unless ``length`` is 0, every entry has to be a list with ``length`` entries.
    """
    rows: list[Any] = content[name]
    require(isinstance(rows, list), name, rows, "give a list")
    for row in rows if length else ():
        fits = isinstance(row, list) and len(row) == length
        require(fits, f"a row of {name}", row, f"give a list of {length} entries")
    return rows
