// The results of a search: their excerpts leave code out, and show short formulas as plain text and long ones as dots.
const GREEK =
  "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau upsilon phi chi psi omega";
const SIGNS = { le: "≤", ge: "≥", in: "∈", cdot: "·", times: "×", pm: "±", star: "⋆", top: "⊤", sqrt: "√", sum: "Σ", to: "→", infty: "∞" };
Object.assign(SIGNS, { lvert: "|", rvert: "|", lVert: "‖", rVert: "‖", varepsilon: "ε" });
GREEK.split(" ").forEach((name, place) => {
  const letter = String.fromCodePoint(0x3b1 + place);
  SIGNS[name] = letter;
  SIGNS[name[0].toUpperCase() + name.slice(1)] = letter.toUpperCase();
});
for (const name of ["sin", "cos", "exp", "ln", "log", "det", "max", "min"]) SIGNS[name] = name;
const ACCENTS = { hat: "\u0302", tilde: "\u0303", bar: "\u0304" };
const PART = String.raw`\s*(?:\{([^{}]*)\}|(\w))`;
const FRACTION = new RegExp(String.raw`\\[dt]?frac${PART}${PART}`, "g");

const asText = (tex) =>
  tex
    .replace(/\\[()[\]]/g, "")
    .replace(FRACTION, (_, ...parts) => `${parts[0] ?? parts[1]}/${parts[2] ?? parts[3]}`)
    .replace(/\\(hat|tilde|bar)\s*\{?\s*(\w)\}?/g, (_, accent, letter) => letter + ACCENTS[accent])
    .replace(/\\([A-Za-z]+)/g, (_, name) => SIGNS[name] ?? "")
    .replace(/[{}\\$]/g, "")
    .normalize("NFC");

addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return; // another page than that of the search
  const index = Search._index;
  index.titles = index.titles.map(asText);
  index.alltitles = Object.fromEntries(Object.entries(index.alltitles).map(([title, places]) => [asText(title), places]));
  const textOf = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const article = page.querySelector("article");
    page.querySelector('[role="main"]').replaceChildren(article); // without the page's buttons and contents
    article.querySelectorAll("pre, .cell_input, details.hide, p.open-in, .origin").forEach((node) => node.remove());
    for (const formula of article.querySelectorAll(".math")) {
      const tex = formula.textContent;
      formula.textContent = tex.length > 60 || /\\begin/.test(tex) ? " … " : asText(tex);
    }
    return textOf(page.documentElement.outerHTML, anchor);
  };
});
