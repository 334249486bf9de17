// The threshold explorer of the Phase II chapter: regret, scalars and synchronisations for the chosen γ, from data in the page.
"use strict";

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("div.explore").forEach(explore));

function explore(box) {
  const data = JSON.parse(box.querySelector("script[type='application/json']").textContent);
  const problems = Object.keys(data.problems);
  const controls = element("div", { class: "explore-controls" });
  const problem = choice("problem", problems);
  const algorithm = choice("algorithm", Object.keys(data.problems[problems[0]]));
  const slider = element("input", { type: "range", min: 0, max: data.gammas.length - 1, step: 1, value: data.first });
  slider.setAttribute("aria-label", "threshold γ");
  const shown = element("output", {});
  const gamma = element("label", {}, "γ ", slider, shown);
  controls.append(problem.label, algorithm.label, gamma);
  const panels = ["cumulative regret", "scalars sent", "synchronisations, run by run"].map((title) => {
    const svg = drawing("svg", { viewBox: "0 0 320 216", role: "img" });
    box.append(svg);
    return { svg, title };
  });
  box.prepend(controls);
  const text = element("p", { class: "explore-text", "aria-live": "polite" });
  box.append(text);
  box.hidden = false;

  const draw = () => {
    const by = data.problems[problem.select.value][algorithm.select.value];
    const { regret, sent, syncs, count } = by.sweep[slider.value];
    const most = (key) => ceiling(Math.max(...by.sweep.map((s) => s[key].at(-1)), 1));
    const name = data.gammas[slider.value];
    shown.textContent = ` = ${name}`;
    slider.setAttribute("aria-valuetext", name);
    curve(panels[0], by, regret, most("regret"));
    curve(panels[1], by, sent, most("sent"));
    ticks(panels[2], by.steps.at(-1), by.phase_one, syncs, by.colour);
    text.textContent =
      `${algorithm.select.value} on ${problem.select.value}, γ = ${name}: final regret ${round(regret.at(-1))}, ` +
      `${round(sent.at(-1))} scalars, ${round(count)} synchronisations (means over ${by.runs} runs).`;
  };
  [problem.select, algorithm.select].forEach((select) => select.addEventListener("change", draw));
  slider.addEventListener("input", draw);
  draw();
}

const LEFT = 64, RIGHT = 314, TOP = 36, BOTTOM = 186;

function curve({ svg, title }, { steps, phase_one, colour }, values, most) {
  const x = (step) => LEFT + ((RIGHT - LEFT) * step) / steps.at(-1);
  const y = (value) => BOTTOM - ((BOTTOM - TOP) * value) / most;
  frame(svg, title, steps.at(-1), phase_one);
  for (const share of [0, 0.5, 1]) {
    svg.append(drawing("text", { x: LEFT - 4, y: y(share * most) + 4, "text-anchor": "end" }, short(share * most)));
  }
  const points = steps.map((step, k) => `${x(step).toFixed(1)},${y(values[k]).toFixed(1)}`).join(" ");
  svg.append(drawing("polyline", { points, fill: "none", stroke: colour, "stroke-width": 2 }));
  svg.setAttribute("aria-label", `${title}: ${short(values.at(-1))} after ${steps.at(-1)} steps`);
}

function ticks({ svg, title }, last, first, syncs, colour) {
  frame(svg, title, last, first);
  const row = (BOTTOM - TOP) / syncs.length;
  const x = (step) => LEFT + ((RIGHT - LEFT) * step) / last;
  syncs.forEach((run, k) =>
    run.forEach((step) => {
      const top = TOP + k * row + 0.15 * row;
      svg.append(drawing("line", { x1: x(step), x2: x(step), y1: top, y2: top + 0.7 * row, stroke: colour }));
    }),
  );
  svg.setAttribute("aria-label", `${title}: ${syncs.map((run) => run.length).join(", ")} in the runs`);
}

function frame(svg, title, last, first) {
  const end = LEFT + ((RIGHT - LEFT) * first) / last;
  svg.replaceChildren(
    drawing("text", { x: 0, y: 18 }, title),
    drawing("path", { d: `M${LEFT},${TOP}V${BOTTOM}H${RIGHT}`, class: "axis" }),
    drawing("path", { d: `M${end},${TOP}V${BOTTOM}`, class: "faint" }),
    drawing("text", { x: LEFT, y: BOTTOM + 22 }, "0"),
    drawing("text", { x: RIGHT, y: BOTTOM + 22, "text-anchor": "end" }, `step ${last}`),
  );
}

function choice(name, options) {
  const select = element("select", {}, ...options.map((option) => element("option", { value: option }, option)));
  return { select, label: element("label", {}, `${name} `, select) };
}

function element(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// the least of 1, 2, 4, 5, 10 times a power of ten that is not below the value, so that its half is a plain number too
function ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((step) => step * unit).find((top) => top >= value * 0.999);
}

const round = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
const short = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
