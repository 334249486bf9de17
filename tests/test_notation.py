"""The page of symbols is complete and true: every symbol of the paper is there, every name and every link resolves."""

import importlib
import inspect
import io
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from book_modules import load

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT.parent / "shared/paper/fed-go-ucb.tex"
PAGE = (ROOT / "book/notation.md").read_text(encoding="utf-8")
BOOK = "## Symbols that this book adds"

# The first column of the paper's notation table, its macros written out.
TABLE = r"""
\|A\|_\mathrm{op}  \mathrm{Ball}_t  \beta_t  C  \zeta  d_x  d_w  \delta  \varepsilon  \eta  f_w(\mathbf{x})
f_\mathbf{x}(w)  \nabla f_\mathbf{x}(w)  \nabla^2 f_\mathbf{x}(w)  F  \iota  \iota'  \iota''  L(w)  \lambda  \mu  [T]
N  \mathrm{Oracle}  n  \epsilon  \gamma  r_t  R_T  \Sigma_t  T_0  T  \mathcal{U}  w  w^*  \hat{w}_0  \hat{w}_{t,i}
\mathcal{W}  \mathbf{x}  \mathbf{x}^*  \|\mathbf{x}\|_p  \|\mathbf{x}\|_A  \mathcal{X}  \mathcal{Y}
"""

# What the text, the algorithms and the proofs use beyond it, as far as it is more than a letter bound by a sum.
OMITTED = r"""
f  f_i  l  i  t  s  i_t  \mathbf{x}_t  y_t  \eta_t  \sigma  C_{NT}  R_{NT}  \mathcal{F}  \nabla f_w(\mathbf{x})
D^l_{t,i}  D_{t,i}  \mathcal{D}_{t,i}  \mathcal{D}_t(i)  w^\star  C_g  C_h  \tau  C_i  C_j  c  b_{t,i}
\Delta\Sigma_{t,i}  \Delta b_{t,i}  \Sigma_{t,g}  b_{t,g}  t_\text{last}  \hat{\mathbf{x}}  \hat L_{T_0}(w)
\hat L_{T_0,i}(w)  \hat w^\star_0  \nu  \tau_1  \tau_2  w^{(k)}  k  K  z_k  \mathcal{N}  d  \mathbf{I}
\Sigma_{t,i}  C_\lambda  C'  C''  R_\text{phase I + phase II}  C_\text{phase I + phase II}  R_\text{phase I}
C_\text{phase I}  R_\text{phase II}  C_\text{phase II}  R_\text{good}  R_\text{bad}  P  p  t_p  t_B  R
\beta_{NT}  \alpha  t_s  t_e  \Sigma_0  \eta_i  \mathcal{F}_i  F_t  X_i  \mathcal{H}  \Sigma  f^\star  f_0
f^\star_t  \hat f_t  \tilde f_t  \tilde f  \tilde f_n  R(f)  \hat R(f)  \mathcal{E}(f)  \hat{\mathcal{E}}(f)
c(f)  X  Y  \tilde w  \tilde{\mathcal{W}}  \tilde W  \tilde w_0  \delta_t  \delta_i  \nabla  f_1  f_2
\bar\alpha  \bar A  \bar P  \hat f  W_1  c_1  W_2  c_2  x_{t,i}  y_{t,i}
"""


links = load("source_links", "source_links")


def plain(symbol: str) -> str:
    """One form of a symbol: braces around a single thing, spaces and the two ways to set a norm do not count."""
    symbol = re.sub(r"\\[lr]Vert|\\\|", "‖", symbol)
    return re.sub(r"[{}\s]", "", symbol)


def symbols(cell: str) -> list[str]:
    return [plain(found) for found in re.findall(r"\$([^$]+)\$", cell)]


def listed(text: str) -> list[str]:
    return [plain(symbol) for symbol in re.split(r"\n|  ", text) if symbol]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "symbol"]


def section(title: str) -> str:
    return re.split(r"^(?:## |\(sec)", PAGE.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


ROWS = rows(PAGE)
PAPERS = [symbol for row in rows(PAGE.partition(BOOK)[0]) for symbol in symbols(row[0])]
NAMES = sorted(set(re.findall(r"\{src\}`([^`]*)`", PAGE)))


def test_rows_have_four_cells_and_none_is_there_twice():
    assert [row for row in ROWS if len(row) != 4 or not symbols(row[0]) or not all(row)] == []
    keys = [(symbol, row[1]) for row in ROWS for symbol in symbols(row[0])]
    assert len(keys) == len(set(keys))


def test_every_symbol_of_the_paper_has_a_row():
    assert set(listed(TABLE + OMITTED)) - set(PAPERS) == set()


def test_the_list_is_the_papers_own_table():
    if not PAPER.exists():
        pytest.skip("the paper is not in the repository")
    tex = PAPER.read_text(encoding="utf-8")
    table = tex[tex.index(r"\label{tab:notations}") : tex.index(r"\end{table}", tex.index("tab:notations"))]
    macros = {r"\bx": r"\mathbf{x}"} | {rf"\c{letter}": rf"\mathcal{{{letter}}}" for letter in "UWXY"}
    first = re.findall(r"^\s*(\$[^&]*?)\s*&", table, re.MULTILINE)
    printed = []
    for cell in first:
        for short, long in macros.items():
            cell = re.sub(re.escape(short) + r"(?![a-zA-Z])", lambda _, long=long: long, cell)
        separate = [cell] if "_{t,i}" in cell else cell.strip("$").split(",")
        printed += [plain(part.strip("$")) for part in separate]
    assert printed == listed(TABLE)


def test_a_symbol_with_several_rows_is_in_the_list_of_those():
    several = {symbol for symbol in PAPERS if PAPERS.count(symbol) > 1}
    assert several - set(symbols(section("One symbol for several things"))) == set()


# One letter, one meaning in the theory part

THEORY = ["theory_oracle", "theory_confidence", "theory_phase_two", "theorem"]
GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
INDEX = rf"_(?:{GROUP}|\\[a-zA-Z]+|[a-zA-Z0-9*+])"
BEFORE_BRACKETS = {r"\varphi", r"\varsigma", r"\varepsilon", "g"}  # functions, or factors of a sum
# What a letter may be said to be: the right side of "letter = …" begins with a number or contains one of these.
MEANS = {
    r"\Lambda": [r"\det"],
    r"\rho": [r"\hatw_0-w^\star", "2E", r"\tildeO"],
    r"\kappa": ["C_h"],
    r"\xi": [r"2\ln(1+\xi)"],
    r"\gamma": ["T", "N"],
    r"\lambda": ["C_g", r"C_\lambda", r"\sqrt{NT}", r"\sqrtN"],
    r"\mu": [r"\zeta", r"\frac{2s^2}{K}", r"s_{\min}"],
    r"\epsilon": ["T_0"],
    r"\varepsilon": ["T_0"],
}


def formulas(text: str) -> list[str]:
    """The formulas of a page of the book: not its code, and not the theorem that it quotes as printed."""
    text = re.sub(r"^(`{3,})\{prf:theorem\}[^\n]*as printed\n.*?^\1$", "", text, flags=re.M | re.S)
    text = re.sub(r"^```\{(?:code-cell|source)\}.*?^```$", "", text, flags=re.M | re.S)
    found = []
    for mark in (r"^```\{math\}(.*?)^```$", r"\$\$(.*?)\$\$", r"\$([^$]+)\$"):
        found += re.findall(mark, text, flags=re.M | re.S)
        text = re.sub(mark, "", text, flags=re.M | re.S)
    words = r":label:.*|\\(?:text|mathrm|begin|end|operatorname)\*?\{[^{}]*\}"
    return [re.sub(words, " ", formula) for formula in found]


def stands(letter: str, formula: str) -> list[tuple[str, str, str]]:
    """Each place where ``letter`` stands: with its accent, index and primes, what comes before, and what follows."""
    start = re.escape(letter) if letter.startswith("\\") else rf"(?<![a-zA-Z\\]){letter}"
    if not letter.startswith("\\"):  # a letter in the index of another is another matter
        formula = re.sub(rf"(?<!{letter}){INDEX}", "", formula)
    form = rf"((?:\\(?:bar|hat|tilde)\s*)?){start}(?![a-zA-Z])((?:{INDEX})?'*)"
    found = re.finditer(form, formula)
    return [(plain(m[1] + letter + m[2]), formula[: m.start()], formula[m.end() :]) for m in found]


def second_meanings(text: str, one: dict[str, list[str]]) -> list[str]:
    """Where a page uses a letter for something else; ``one`` has the forms in which each letter may be written."""
    faults = []
    for formula in formulas(text):
        for letter, forms in one.items():
            for form, before, after in stands(letter, formula):
                if form not in forms:
                    faults.append(f"{form} is no form of {letter}: {formula}")
                elif letter not in BEFORE_BRACKETS and re.match(r"\s*(?:\\[bB]igl?)?\(", after):
                    faults.append(f"{letter} is no function: {formula}")
                said = re.match(rf"(?:\^(?:{GROUP}|.))?\s*&?\s*:?=(?:\{{\}}|[&\s])*(.*)", after, re.S)
                begins = re.search(r"(?:^|[,;:&]|\\\\|\\q?quad)\s*$", before)
                if said and begins and letter in MEANS and not said[1][0].isdigit():
                    right = re.sub(r"\s|\\[,;]|\\[bB]igl?|[{}]*&", "", said[1])
                    if not any(part in right for part in MEANS[letter]):
                        faults.append(f"{letter} is something else: {formula}")
        if any(r"\gamma" in exponent for exponent in re.findall(rf"\^({GROUP}|\\[a-zA-Z]+)", formula)):
            faults.append(f"the threshold is no exponent: {formula}")
    return faults


def one_meaning() -> dict[str, list[str]]:
    cells = {row[0]: row[2] for row in rows(section("One letter, one meaning in the theory part"))}
    return {re.findall(r"\$([^$]+)\$", cell)[0]: symbols(written) for cell, written in cells.items()}


def test_in_the_theory_part_a_letter_has_one_meaning():
    one = one_meaning()
    pages = {ROOT / f"notebooks/{name}.md" for name in THEORY} | {ROOT / "book/repaired_theorem.md"}
    text = {page.name: page.read_text(encoding="utf-8") for page in pages}
    assert {name: second_meanings(page, one) for name, page in text.items()} == {name: [] for name in text}
    every = [formula for page in text.values() for formula in formulas(page)]
    written = {letter: {form for f in every for form, *_ in stands(letter, f)} for letter in one}
    assert {letter: sorted(set(forms) - written[letter]) for letter, forms in one.items()} == {
        k: [] for k in one
    }


@pytest.mark.parametrize(
    ("fault", "letter"),
    [
        (r"Put $\Lambda = \ln(2|\mathcal F|/\delta)$.", r"\Lambda"),
        (r"For $\rho > 0$ let there be a net.", r"\rho"),
        (r"$$A = \frac{u + d_w \ln\lceil \sqrt{d_w}/(2\rho) \rceil}{T_0}$$", r"\rho"),
        (r"If $\sigma_{\min}(J(w)) \ge s$, then", r"\sigma"),
        (r"$k = \sup_z |z|\sigma'(z)$", r"\sigma"),
        (r"$\sigma(z) = 1/(1 + e^{-z})$", r"\sigma"),
        ("```{math}\n\\tfrac\\tau2 D(w)^\\gamma\n```", r"\gamma"),
        (r"$\mu^{\gamma/(2-\gamma)}$", r"\gamma"),
        (r"an exponent $\gamma = \frac32$", r"\gamma"),
        (r"$\tau^{2/(2-g)}$", "g"),
        (r"for every $g \ne 0$", "g"),
        (r"$\mathbb E_z e^{z\eta}$ with $\lambda = \ln 2/B$", r"\lambda"),
        (r"$\mu = 2\lambda_{\min}(A)$", r"\lambda"),
        (r"let $\kappa = \frac{\beta}{\lambda}$", r"\kappa"),
        (r"and $\hat\varphi$", r"\varphi"),
        (r"$\xi \approx 1$, the root; $\xi = \zeta/\mu$", r"\xi"),
    ],
)
def test_a_second_meaning_is_found(fault, letter):
    found = second_meanings(fault, one_meaning())
    assert any(letter in each or "threshold" in each for each in found)


@pytest.mark.parametrize(
    "right",
    [
        "```{prf:theorem} Regret, as printed\n$\\mu^{\\gamma/(2-\\gamma)}$\n```",
        "```{code-cell} ipython3\nlabel = r'$\\rho = \\sigma(z)$'\n```",
        r"$\Lambda_p$ and $\rho_0^2 = \tilde O(1/T)$, $C_g$ and $\Sigma_{t,g}$, $\bar\rho^2 = {}& \frac{2E}{\mu}$",
        r"$\lVert g_{s}\rVert^2 \le \varphi(u)$, $\gamma = d_wF^4T/(\mu^2N)$, $\sigma = 0.1$, $\lambda = 1$",
    ],
)
def test_what_is_right_or_quoted_or_code_is_no_second_meaning(right):
    assert second_meanings(right, one_meaning()) == []


def defined(name: str) -> tuple[object, str | None]:
    """What the interpreter knows under ``name``: the object or, for a field, a parameter or a constant, its owner."""
    parts = name.split(".")
    size = next(
        size
        for size in range(len(parts), 0, -1)
        if (ROOT.joinpath(*parts[:size]).with_suffix(".py")).is_file()
    )
    found: object = importlib.import_module(".".join(parts[:size]))
    for position, part in enumerate(parts[size:], size):
        own = vars(found).get(part) if inspect.ismodule(found) or inspect.isclass(found) else None
        if inspect.isfunction(own) or inspect.isclass(own):
            found = own
            continue
        if isinstance(own, property):
            found = own.fget
            continue
        assert position == len(parts) - 1, f"{name}: {part} has no members"
        if inspect.isfunction(found):
            known = inspect.signature(inspect.unwrap(found)).parameters
        elif inspect.isclass(found):
            known = [f.name for f in fields(found)] if is_dataclass(found) else found._fields
        else:
            known = vars(found)
        assert part in known, f"{name} does not exist"
        return found, part
    return found, None


def test_every_name_resolves_and_its_line_defines_it():
    assert NAMES
    for name in NAMES:
        check_name(name)


def check_name(name):
    """The interpreter knows the name, and the line that is linked defines it."""
    owner, last = defined(name)
    owner = inspect.unwrap(owner)
    file, line = links.find(name)
    text = (ROOT / file).read_text(encoding="utf-8").splitlines()[line - 1]
    lines, first = inspect.getsourcelines(owner)
    assert Path(inspect.getsourcefile(owner)).relative_to(ROOT).as_posix() == file, name
    assert first <= line <= first + len(lines), name
    assert re.search(rf"\b{name.split('.')[-1]}\b", text), name
    assert last is not None or re.match(r"\s*(?:def|class) ", text), name


MODULE = """
import torch

LIMIT: int = 3
if LIMIT:
    other = 4


class Ball(NamedTuple):
    sigma: Tensor

    @property
    def size(self) -> int:
        length = 2
        return length

    def grow(self, by: float, *, times=1) -> "Ball":
        return self


def outer(radius, /, *rest, **options):
    local = [inside for inside in rest]
    for step in rest:
        pass

    def inner(deep):
        return deep

    return lambda unseen: inner
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("p.m", 1),
        ("p.m.LIMIT", 4),
        ("p.m.other", 6),
        ("p.m.Ball", 9),
        ("p.m.Ball.sigma", 10),
        ("p.m.Ball.size", 13),
        ("p.m.Ball.grow.by", 17),
        ("p.m.Ball.grow.times", 17),
        ("p.m.outer.radius", 21),
        ("p.m.outer.options", 21),
    ],
)
def test_a_name_leads_to_the_line_that_defines_it(tmp_path, name, line):
    (tmp_path / "p").mkdir()
    (tmp_path / "p/m.py").write_text(MODULE)
    assert links.find(name, tmp_path) == ("p/m.py", line)


@pytest.mark.parametrize(
    "name",
    [
        "gone", "p.gone", "p.m.gone", "p.m.outer.gone", "p.m.Ball.by",  # a method's parameter is not the class'
        "p.m.outer.local", "p.m.outer.step", "p.m.outer.inside", "p.m.outer.unseen", "p.m.outer.inner",
        "p.m.outer.inner.deep", "p.m.Ball.size.length", "p.m.torch",
    ],
)  # fmt: skip
def test_a_name_that_is_gone_or_a_functions_own_affair_is_refused(tmp_path, name):
    """A maintainer may rename a local variable, and no page notices."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p/m.py").write_text(MODULE)
    (tmp_path / "p/__init__.py").touch()
    with pytest.raises(LookupError):
        links.find(name, tmp_path)


@pytest.mark.slow
def test_the_role_links_to_an_anchor_that_its_page_has(tmp_path):
    """Sphinx itself on a page of two names, one of them wrong."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    (tmp_path / "index.rst").write_text(
        "Names\n=====\n\n:src:`fedgo.confidence.Ball.sigma` :src:`fedgo.confidence.Ball.gone`\n"
    )
    warnings = io.StringIO()
    with docutils_namespace():
        app = Sphinx(
            tmp_path, None, tmp_path / "html", tmp_path / "trees", "html",
            confoverrides={"extensions": ["source_links"], "html_theme": "basic"}, status=None, warning=warnings,
        )  # fmt: skip
        app.build()
    assert "does not define 'gone'" in warnings.getvalue()
    _, line = links.find("fedgo.confidence.Ball.sigma")
    page = (tmp_path / "html/index.html").read_text()
    assert f'href="source/fedgo/confidence.html#line-{line}" title="fedgo/confidence.py, line {line}"' in page
    source = (tmp_path / "html/source/fedgo/confidence.html").read_text()
    (shown,) = re.findall(rf'<span id="line-{line}">(.*)', source)
    assert re.sub("<[^>]*>", "", shown).split() == [str(line), "sigma:", "Tensor"]


def test_every_linked_page_and_label_exists():
    pages = [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "book").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    labels = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    statements = set(re.findall(r"^:label: ([\w-]+)$", text, re.MULTILINE))
    targets = re.findall(r"\]\(([^)]+)\)", PAGE)
    missing = []
    for target in targets:
        if target.endswith(".ipynb"):
            known = (ROOT / "notebooks" / target.removeprefix("_executed/")).with_suffix(".md").is_file()
        elif target.endswith(".md"):
            known = (ROOT / "book" / target).is_file()
        else:
            known = target in labels
        if not known:
            missing.append(target)
    missing += set(re.findall(r"\{prf:ref\}`[^`<]*<([\w-]+)>`", PAGE)) - statements
    assert targets and missing == []
