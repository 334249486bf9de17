"""The chapters of a part "Appendix A: ..." are numbered A1, A2, and so on; their sections, figures and formulas too."""

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.environment.collectors.toctree import TocTreeCollector


def letter(env: BuildEnvironment, page: str, chapter: str) -> None:
    """Put ``chapter`` in the place of the first number of every section of ``page``, and of the pages below it."""
    numbers: dict[str, Any] = env.toc_secnumbers[page]
    for anchor, number in numbers.items():
        numbers[anchor] = number and (chapter, *number[1:])
    for title in (env.titles[page], *env.tocs[page].findall(nodes.reference)):
        if title.get("secnumber"):
            title["secnumber"] = [chapter, *title["secnumber"][1:]]
    for below in env.toctree_includes.get(page, []):
        letter(env, below, chapter)


def setup(app: Sphinx) -> None:
    """What Sphinx calls, after jupyter-book, whose numbers run through all parts."""
    numbered = TocTreeCollector.assign_section_numbers

    def assign(collector: TocTreeCollector, env: BuildEnvironment) -> list[str]:
        changed = numbered(collector, env)
        for part in env.get_doctree(env.config.root_doc).findall(toctree):
            if found := re.match(r"Appendix ([A-Z])\b", part.get("caption") or ""):
                for place, (_, page) in enumerate(part["entries"], 1):
                    letter(env, page, f"{found[1]}{place}")
        return changed

    setattr(TocTreeCollector, "assign_section_numbers", assign)  # noqa: B010  # a method, says mypy
