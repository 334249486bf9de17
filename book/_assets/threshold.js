// The threshold explorer: what γ does to the regret, the bill and the synchronisations, beside the other algorithms.
"use strict";

plot.register("threshold", (box, { gammas, first, problems }) => {
  const names = Object.keys(problems);
  const problem = plot.choice("problem", names);
  const algorithm = plot.choice("algorithm", Object.keys(problems[names[0]]));
  const slider = plot.slider("threshold γ", gammas.length - 1, first);
  const controls = plot.controls(problem.label, algorithm.label, slider.label);
  const [regret, bargain, times] = [plot.panel(), plot.panel(), plot.panel()];
  const text = plot.say();
  box.append(controls, regret, bargain, times, text);
  let now = { place: "", at: first }, ghost = null;

  const draw = () => {
    const by = problems[problem.select.value], name = algorithm.select.value, place = `${problem.select.value} ${name}`;
    const at = Number(slider.input.value);
    if (place !== now.place) ghost = null;
    else if (at !== now.at) ghost = now.at;
    now = { place, at };
    slider.says(`= ${gammas[at]}`);
    curves(regret, by, name, at, ghost);
    tradeOff(bargain, by, name, at, ghost);
    rows(times, by[name], by[name].sweep[at].syncs);
    const told = ({ regret: values, sent, count }) =>
      `final regret ${plot.number(values.at(-1))}, ${plot.number(Math.round(sent))} scalars, ${plot.number(count)} synchronisations`;
    text.textContent =
      `${name} on ${problem.select.value}, γ = ${gammas[at]}: ${told(by[name].sweep[at])} (means over ${by[name].runs} runs).` +
      (ghost === null ? "" : ` Dashed and hollow, γ = ${gammas[ghost]}: ${told(by[name].sweep[ghost])}.`);
  };
  [problem.select, algorithm.select].forEach((select) => select.addEventListener("change", draw));
  slider.input.addEventListener("input", draw);
  draw();

  function axes(by) {
    const finals = Object.values(by).flatMap(({ sweep }) => sweep.map((row) => row.regret.at(-1)));
    const range = plot.decades(finals);
    return { range, y: plot.logarithmic(range.low, range.high, plot.bottom, plot.top), ...time(Object.values(by)[0].steps.at(-1)) };
  }

  function time(last) {
    const ticks = plot.decades([1, last]).ticks.filter((tick) => tick <= last);
    return { steps: ticks, x: plot.logarithmic(1, last, plot.left, plot.right) };
  }

  function curves(svg, by, chosen, at, before) {
    const { range, steps, x, y } = axes(by);
    plot.frame(svg, "cumulative regret", x, steps, y, range.ticks, "step");
    const end = x(by[chosen].phase_one);
    svg.append(
      plot.drawing("path", { d: `M${end},${plot.top}V${plot.bottom}`, class: "faint" }),
      plot.drawing("text", { x: end - 4, y: plot.top + 12, "text-anchor": "end", class: "name" }, "Phase I"), // above the curves
    );
    const points = (name, k) => by[name].steps.map((step, n) => [x(step), y(by[name].sweep[k].regret[n])]);
    const ends = [];
    for (const name of Object.keys(by).sort((a, b) => (a === chosen) - (b === chosen))) {
      const strong = name === chosen, path = points(name, at);
      if (strong && before !== null) svg.append(plot.line(points(name, before), by[name].colour, { class: "ghost" }));
      svg.append(plot.line(path, by[name].colour, strong ? { "stroke-width": 3 } : { "stroke-width": 1.5, opacity: 0.5 }));
      ends.push([name, path.at(-1)[1], strong]);
    }
    plot.names(svg, ends, plot.right);
    svg.setAttribute("aria-label", `cumulative regret of ${chosen}: ${plot.number(by[chosen].sweep[at].regret.at(-1))} at the end`);
  }

  function tradeOff(svg, by, chosen, at, before) {
    const sent = Object.values(by).flatMap(({ sweep }) => sweep.map((row) => row.sent));
    const { x, ticks } = plot.scalars(sent), { range, y } = axes(by);
    plot.frame(svg, "final regret", x, ticks, y, range.ticks, "scalars sent");
    for (const name of Object.keys(by).sort((a, b) => (a === chosen) - (b === chosen))) {
      const path = by[name].sweep.map((row) => [x(row.sent), y(row.regret.at(-1))]), strong = name === chosen;
      svg.append(plot.line(path, by[name].colour, { "stroke-width": strong ? 2 : 1, opacity: strong ? 1 : 0.5 }));
      for (const point of path) svg.append(plot.dot(...point, by[name].colour, { r: strong ? 3 : 2, opacity: strong ? 1 : 0.5 }));
      if (!strong) svg.append(plot.dot(...path[at], by[name].colour, { r: 4, opacity: 0.6 }));
      if (strong && before !== null) svg.append(plot.dot(...path[before], by[name].colour, { r: 7, fill: "none" }));
      if (strong) svg.append(plot.dot(...path[at], by[name].colour, { r: 7, class: "here" }));
    }
    const { regret: values, sent: bill } = by[chosen].sweep[at];
    svg.setAttribute("aria-label", `${chosen}: final regret ${plot.number(values.at(-1))} for ${plot.number(bill)} scalars sent`);
  }

  function rows(svg, { steps, phase_one, colour }, syncs) {
    const { steps: ticks, x } = time(steps.at(-1));
    const row = (plot.bottom - plot.top) / syncs.length;
    plot.frame(svg, "synchronisations, run by run", x, ticks, () => 0, [], "step");
    svg.append(plot.drawing("path", { d: `M${x(phase_one)},${plot.top}V${plot.bottom}`, class: "faint" }));
    syncs.forEach((run, k) => {
      const top = plot.top + (k + 0.15) * row;
      const path = run.map((step) => `M${x(step).toFixed(1)},${top.toFixed(1)}v${(0.7 * row).toFixed(1)}`).join("");
      svg.append(
        plot.drawing("text", { x: plot.left - 7, y: top + 0.35 * row + 5, "text-anchor": "end" }, `${k + 1}`),
        plot.drawing("path", { d: path || "M0,0", stroke: colour, "stroke-width": 1.5 }),
      );
    });
    svg.setAttribute("aria-label", `synchronisations in the runs: ${syncs.map((run) => run.length).join(", ")}`);
  }
});
