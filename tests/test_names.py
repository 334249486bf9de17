"""The pages of names: every module is there, docstrings lose nothing, links hold, and what the how-to shows runs."""

import re
from pathlib import Path

import pytest
import torch
from book_modules import load
from docutils.core import publish_doctree

load("source_links", "source_links")
names = load("names")

ROOT = Path(__file__).resolve().parents[1]


def test_every_module_is_on_one_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "book/api").glob("*.md"))
    found = re.findall(r"automodule:: (\S+)", pages)
    shown = [
        name for name in found if not (ROOT / name.replace(".", "/")).is_dir()
    ]  # a package opens its page
    files = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "fedgo").rglob("*.py"))
    assert sorted(shown) == sorted(".".join(file.parts) for file in files if not file.name.startswith("_"))


@pytest.mark.parametrize(
    ("signature", "shown"),
    [
        ("(a: ~x.Y = <factory>, b: int = 3)", ("(a: ~x.Y = ..., b: int = 3)", "int")),
        ("(f: ~x.F[[...], ~t.Any] = <function <lambda> at 0x1>)", ("(f: ~x.F[[...], ~t.Any] = ...)", "int")),
        ("(a: int = 3)", None),
        (None, None),
    ],
)
def test_a_default_that_is_no_python_is_dots(signature, shown):
    assert names.interface(None, "class", "C", object, None, signature, "int") == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w* and f_{w*}, |x| ≤ 1, *all*", "w* and fw*, |x| ≤ 1, *all*"),
        ("d_wF², C_gρ, K_ZZ^{-1/2}, R_phaseII.", "dwF², Cgρ, KZZ-1/2, RphaseII."),
        ("y_t = f(x_t) + η_t, Σ_i, log_σ_t, ℓ_∞", "yt = f(xt) + ηt, Σi, log_σ_t, ℓ∞"),
        ("argmax_x max_w, ‖w − ŵ‖²_Σ, c_μ, |.|_{Σ_{s−1}⁻¹}", "argmaxx maxw, ‖w − ŵ‖²Σ, cμ, |.|Σs−1⁻¹"),
        ("[0, 1]^d_w and τr^χ/2, 10^-3, a^bc", "[0, 1]dw and τrχ/2, 10^-3, a^bc"),
        ("``basis``ᵀ of ``features`` @ `Star`, then `ball`.", "basisᵀ of features @ Star, then ball."),
        ("N(0, ``scale``²I) \\ and __init__, log_ratio_", "N(0, scale²I) \\ and __init__, log_ratio_"),
    ],
)
def test_a_docstring_is_shown_as_it_is_written(text, shown):
    lines = [text]
    names.plain(None, "function", "f", None, None, lines)
    source = "\n".join([".. default-role:: code", "", *lines])  # as in _config.yml
    tree = publish_doctree(source, settings_overrides={"report_level": 1, "halt_level": 2})
    assert tree.astext() == shown


def test_a_name_links_to_its_line_and_an_inherited_one_to_nothing():
    link = names.source_page("py", {"module": "fedgo.star", "fullname": "Star.collect"})
    page, _, line = link.partition(".html#line-")
    assert page == "../../source/fedgo/star"
    shown = (ROOT / "fedgo/star.py").read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert shown.strip().startswith("def collect(")
    assert names.source_page("py", {"module": "fedgo.star", "fullname": "Star.index"}) is None


@pytest.mark.slow
def test_what_the_how_to_makes_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "book/use.md").read_text(encoding="utf-8")
    found: dict = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), found)
    for name in ("trace", "mine"):
        assert found[name].arm.shape[0] == 5
        assert (found[name].regret >= 0).all()
    assert (tmp_path / "mine.npz").is_file()
    late = found["mine"].regret[:, -100:].mean()
    assert late < found["problem"].regret(torch.arange(40).expand(5, -1)).mean() / 2  # it learns
