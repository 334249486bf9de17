// What the explorers share: controls, logarithmic axes, lines, numbers as the book prints them.
"use strict";

const plot = {
  width: 340, height: 250, left: 58, right: 330, top: 34, bottom: 202,

  // call draw(box, data) for every explorer of this kind, once the page is there
  register(kind, build) {
    document.addEventListener("DOMContentLoaded", () =>
      document.querySelectorAll(`div.explore[data-kind="${kind}"]`).forEach((box) => {
        build(box, JSON.parse(box.querySelector("script[type='application/json']").textContent));
        box.hidden = false;
      }),
    );
  },

  fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  },
  element: (tag, attributes, ...children) => plot.fill(document.createElement(tag), attributes, children),
  drawing: (tag, attributes, ...children) =>
    plot.fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children),

  // what a reader may change, in a row above the drawings
  controls: (...parts) => plot.element("div", { class: "explore-controls d-flex flex-wrap align-items-center gap-3" }, ...parts),
  // a labelled list; the node that is chosen from, and the label around it
  choice(name, options) {
    const select = plot.element("select", {}, ...options.map((option) => plot.element("option", { value: option }, option)));
    return { select, label: plot.element("label", {}, `${name} `, select) };
  },
  // a labelled slider over whole numbers from 0, with room for what it says
  slider(name, last, value) {
    const input = plot.element("input", { type: "range", class: "flex-fill", min: 0, max: last, step: 1, value, "aria-label": name });
    const output = plot.element("output", {});
    const says = (text) => {
      output.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    const label = plot.element("label", { class: "d-flex flex-wrap align-items-center gap-2 w-100" }, `${name} `, input, output);
    return { input, says, label };
  },
  panel(height = plot.height) {
    return plot.drawing("svg", { viewBox: `0 0 ${plot.width} ${height}`, role: "img" });
  },
  say: () => plot.element("p", { class: "explore-text mb-0", "aria-live": "polite" }),

  number(value) {
    if (value >= 1e5) return plot.powers(value);
    return value.toLocaleString("en", { maximumSignificantDigits: value < 1000 ? 3 : 5, maximumFractionDigits: 2 });
  },
  powers(value) {
    const [lead, power] = value.toExponential(1).split("e+");
    const raised = [...power].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
    return lead === "1.0" ? `10${raised}` : `${lead}·10${raised}`;
  },
  // how the ticks of an axis are printed: all in digits, or from 100 on all as powers where one has to be
  printed: (ticks) => (value) => (Math.max(...ticks) >= 1e5 && value >= 100 ? plot.powers(value) : plot.number(value)),

  // from value to pixel: linear, or logarithmic with a place of its own for 0 if there is a `zero`
  linear: (low, high, from, to) => (value) => from + ((to - from) * (value - low)) / (high - low),
  logarithmic(low, high, from, to, zero = from) {
    const place = plot.linear(Math.log10(low), Math.log10(high), from, to);
    return (value) => (value <= 0 ? zero : place(Math.log10(Math.max(value, low))));
  },
  // powers of ten around the positive values, and those to print
  decades(values) {
    const logs = values.filter((value) => value > 0).map(Math.log10);
    const low = Math.floor(Math.min(...logs) + 1e-9), high = Math.max(Math.ceil(Math.max(...logs) - 1e-9), low + 1);
    const every = Math.ceil((high - low) / 4);
    const ticks = [];
    for (let power = high; power >= low; power -= every) ticks.unshift(10 ** power);
    return { low: 10 ** low, high: 10 ** high, ticks };
  },

  // the places of an axis of scalars, on which 0 stands apart, and its ticks
  scalars(values) {
    const bills = plot.decades(values), from = plot.left + 46;
    const x = plot.logarithmic(bills.low, bills.high, from, plot.right, plot.left + 10);
    return { ...bills, x, from, ticks: [0, ...bills.ticks] };
  },

  // axes with a title, ticks along x and y, and what the axes are
  frame(svg, title, x, xTicks, y, yTicks, xName) {
    const { left, right, top, bottom, drawing } = plot;
    svg.replaceChildren(
      drawing("text", { x: 2, y: 18, class: "title" }, title),
      drawing("path", { d: `M${left},${top}V${bottom}H${right}`, class: "axis" }),
      drawing("text", { x: right, y: bottom + 40, "text-anchor": "end" }, xName),
    );
    const [xText, yText] = [plot.printed(xTicks), plot.printed(yTicks)];
    for (const tick of yTicks) {
      svg.append(
        drawing("path", { d: `M${left - 4},${y(tick)}h4`, class: "axis" }),
        drawing("text", { x: left - 7, y: y(tick) + 5, "text-anchor": "end" }, yText(tick)),
      );
    }
    for (const tick of xTicks) {
      svg.append(
        drawing("path", { d: `M${x(tick)},${bottom}v4`, class: "axis" }),
        drawing("text", { x: x(tick), y: bottom + 20, "text-anchor": x(tick) > right - 12 ? "end" : "middle" }, xText(tick)),
      );
    }
  },
  // greys turn with the page's colours, the others stay
  paint: (colour, name = "") => (/^#(..)\1\1$/.test(colour) ? `${name} neutral` : name),
  line(points, colour, { class: name, ...attributes }) {
    const text = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    return plot.drawing("polyline", { points: text, fill: "none", stroke: colour, class: plot.paint(colour, name), ...attributes });
  },
  dot(x, y, colour, { class: name, ...attributes }) {
    const at = { cx: x.toFixed(1), cy: y.toFixed(1), r: 4 };
    return plot.drawing("circle", { ...at, fill: colour, stroke: colour, class: plot.paint(colour, name), ...attributes });
  },
  // names at the ends of curves, the lowest below its curve, moved apart where they would overlap: [text, y, strong]
  names(svg, entries, x) {
    let last = plot.top - 8;
    for (const [text, y, strong] of entries.sort((a, b) => a[1] - b[1])) {
      const lowest = y === entries.at(-1)[1] && y + 20 < plot.bottom;
      last = Math.max(last + 15, lowest ? y + 16 : y - 5);
      svg.append(plot.drawing("text", { x, y: last, "text-anchor": "end", class: strong ? "name strong" : "name" }, text));
    }
  },
};
