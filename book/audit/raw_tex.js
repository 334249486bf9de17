// TeX, a table's source or a Python object that a reader sees: outside code, MathJax has turned all TeX into formulas,
// or says what it could not read, and a table of an output is one (its cell says `markdown_format: myst`).
() => {
  const errors = document.querySelectorAll("mjx-merror, [data-mjx-error]");
  const faults = [...errors].map((e) => "MathJax error: " + e.textContent);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [document.title];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.closest("code, pre, script, style, noscript, mjx-container")) texts.push(node.data);
  }
  for (const text of texts) {
    const found = text.match(/\\[a-zA-Z]{2,}|\\[()[\]]|\$\$|\$[^\s$]/);
    const bars = text.match(/^\s*\| .*\|.*\|/);
    const thing = text.match(/<[\w.]+ (object|at)\b[^>]*>/);
    if (thing) faults.push("raw object: " + thing[0]);
    if (bars) faults.push("raw table: " + bars[0].trim().slice(0, 60));
    if (found) faults.push("raw TeX: " + text.slice(Math.max(0, found.index - 30), found.index + 30).trim());
  }
  return faults;
}
