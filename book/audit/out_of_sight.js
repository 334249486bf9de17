// Formulas and tables of which a part is out of sight until the reader scrolls them, with a name that lasts: a formula's
// label or its first characters, a table's caption or its first row, and the section that it stands in.
() => {
  const short = (text) => text.replace(/\s+/g, " ").trim().slice(0, 40).trim();
  const hides = new Map();
  const scrolls = (e) => {
    if (!hides.has(e)) hides.set(e, getComputedStyle(e).overflowX !== "visible");
    return hides.get(e);
  };
  const name = (e) => {
    const section = e.closest("section[id]")?.id ?? "the page";
    if (e.tagName === "TABLE") return `the table '${short((e.caption ?? e.rows[0] ?? e).textContent)}' in ${section}`;
    return e.id ? `the formula ${e.id}` : `the formula '${short(e.textContent)}' in ${section}`;
  };
  // Whether e has more to show than itself, or a box around it, shows at once.
  const hidden = (e) => {
    if (scrolls(e) && e.scrollWidth > e.clientWidth + 1) return true;
    const { right, width } = e.getBoundingClientRect();
    for (let box = e.parentElement; width && box.tagName !== "ARTICLE"; box = box.parentElement) {
      const inner = box.getBoundingClientRect().left + box.clientLeft + box.clientWidth;
      if (scrolls(box) && right > inner + 1) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("article :is(div.math, table)")]
    .filter((e) => hidden(e) || [...e.querySelectorAll("mjx-container, mjx-container > mjx-math")].some(hidden))
    .map((e) => `${name(e)} is wider than its column`);
}
