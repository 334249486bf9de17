"""The page of symbols is complete: every symbol of the paper's own table has a row."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "book/notation.md").read_text(encoding="utf-8")

# The first column of the paper's notation table, its macros written out.
TABLE = r"""
\|A\|_\mathrm{op}  \mathrm{Ball}_t  \beta_t  C  \zeta  d_x  d_w  \delta  \varepsilon  \eta  f_w(\mathbf{x})
f_\mathbf{x}(w)  \nabla f_\mathbf{x}(w)  \nabla^2 f_\mathbf{x}(w)  F  \iota  \iota'  \iota''  L(w)  \lambda  \mu  [T]
N  \mathrm{Oracle}  n  \epsilon  \gamma  r_t  R_T  \Sigma_t  T_0  T  \mathcal{U}  w  w^*  \hat{w}_0  \hat{w}_{t,i}
\mathcal{W}  \mathbf{x}  \mathbf{x}^*  \|\mathbf{x}\|_p  \|\mathbf{x}\|_A  \mathcal{X}  \mathcal{Y}
"""


def plain(symbol: str) -> str:
    """One form of a symbol: braces, spaces and the two ways to set a norm do not count."""
    return re.sub(r"[{}\s]", "", re.sub(r"\\[lr]Vert|\\\|", "‖", symbol))


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("symbol", "letter")]


def test_every_symbol_of_the_papers_table_has_a_row() -> None:
    first = [row[0] for row in rows() if len(row) == 2]  # of three cells are the letters that collide
    there = {plain(symbol) for cell in first for symbol in re.findall(r"\$([^$]+)\$", cell)}
    assert {plain(symbol) for symbol in re.split(r"\n|  ", TABLE) if symbol} <= there
