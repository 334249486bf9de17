// What is cut off: a box that scrolls may hold something wider, one that hides what overflows it may not.
() => {
  const width = innerWidth, faults = [];
  const name = (e) => [e.tagName.toLowerCase(), ...e.classList].slice(0, 2).join(".");
  const known = new Map();
  const around = (e) => {  // the boxes around e, e among them, that do not show what overflows them
    if (!e) return [];
    if (!known.has(e)) {
      const how = getComputedStyle(e).overflowX, outer = around(e.parentElement);
      known.set(e, how === "visible" ? outer : [{ e, how, edge: e.getBoundingClientRect() }, ...outer]);
    }
    return known.get(e);
  };
  const look = (box, parent, what) => {
    let { left, right } = box, by = "";
    for (const { e, how, edge } of box.width ? around(parent) : []) {
      if (how === "auto" || how === "scroll") ({ left, right } = edge);
      else if (!by && (right > edge.right + 1 || left < edge.left - 1)) by = name(e);
    }
    if (box.width && !by && (right > width + 1 || left < -1)) by = "the edge of the screen";
    if (by) faults.push(`${what.replace(/\s+/g, " ").trim().slice(0, 40)} is cut off by ${by}`);
  };
  const page = document.documentElement.scrollWidth, article = document.querySelector("article");
  if (page > width) faults.push(`the page is ${page} px wide on a screen of ${width} px`);
  if (!article) return faults;
  const range = document.createRange();
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || node.parentElement.closest("mjx-container, svg, script, style")) continue;
    range.selectNodeContents(node);
    look(range.getBoundingClientRect(), node.parentElement, node.data);
  }
  for (const e of article.querySelectorAll("mjx-container, img, svg, select, input, button, div, pre")) {
    if (!e.closest("mjx-container mjx-container, mjx-assistive-mml")) {
      look(e.getBoundingClientRect(), e.parentElement, `${name(e)} ${e.textContent}`);
    }
  }
  for (const e of article.querySelectorAll(".math")) {
    if (getComputedStyle(e).overflowY === "visible") continue;
    const edge = e.getBoundingClientRect();
    const glyphs = e.querySelectorAll(":not(mjx-ext) > mjx-c, mjx-stretchy-v"); // ext: cut by the bracket it is part of
    const boxes = [...glyphs].map((glyph) => glyph.getBoundingClientRect());
    if (boxes.some((box) => box.top < edge.top - 1 || box.bottom > edge.bottom + 1)) {
      faults.push(`${name(e)} ${e.textContent.trim().slice(0, 30)} is cut off above or below`);
    }
  }
  return faults;
}
