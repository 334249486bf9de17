// WCAG 2's ratio for every pair of colours in which the article sets text, formulas and labels of drawings.
() => {
  document.getAnimations().forEach((animation) => animation.cancel()); // colours as they will stay
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+(e-?\d+)?/g).map(Number);
    const scale = text.startsWith("rgb") ? 1 : text.startsWith("color(srgb ") ? 255 : NaN;
    return [r * scale, g * scale, b * scale, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((value, k) => a * value + (1 - a) * under[k]);
  const known = new Map([[null, { ground: [255, 255, 255], opacity: 1 }]]);
  const behind = (e) => {
    if (!known.has(e)) {
      const { backgroundColor, opacity } = getComputedStyle(e), outer = behind(e.parentElement);
      known.set(e, { ground: over(parse(backgroundColor), outer.ground), opacity: opacity * outer.opacity });
    }
    return known.get(e);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Map();
  const look = (e, text) => {
    const style = getComputedStyle(e);
    if (style.visibility !== "visible" || !e.getClientRects().length) return;
    const { ground, opacity } = behind(e);
    if (opacity === 0) return;
    const [r, g, b, a] = parse(e.closest("svg") ? style.fill : style.color);
    const ink = over([r, g, b, a * opacity], ground);
    const key = [...ink, ...ground].map(Math.round).join();
    if (seen.has(key)) return;
    const [high, low] = [light(ink), light(ground)].sort((x, y) => y - x), ratio = (high + 0.05) / (low + 0.05);
    const what = `${ink.map(Math.round)} on ${ground.map(Math.round)}: ${text.trim().slice(0, 40)}`;
    seen.set(key, ratio >= 4.5 ? null : `contrast ${ratio.toFixed(2)}, ${what}`);
  };
  const article = document.querySelector("article");
  if (!article) return [];
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (node.data.trim() && !e.closest("script, style, mjx-container, option")) look(e, node.data);
  }
  document.querySelectorAll("article :is(mjx-math, mjx-mstyle, select)").forEach((e) => look(e, e.textContent));
  return [...seen.values()].filter(Boolean);
}
