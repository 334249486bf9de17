// The budget explorer: drag the number of scalars that may be sent; who has the least regret within it?
"use strict";

plot.register("budget", (box, { problems }) => {
  const TICKS = 200;
  const problem = plot.choice("problem", Object.keys(problems));
  const count = plot.choice("messages", ["dense", "packed"]);
  const slider = plot.slider("budget", TICKS, 0.6 * TICKS);
  const controls = plot.controls(problem.label, count.label, slider.label);
  const svg = plot.panel(), ranking = plot.element("ol", { class: "mb-0" });
  const others = plot.element("p", {}), text = plot.say();
  svg.classList.add("drag");
  box.append(controls, svg, plot.element("div", {}, ranking, others, text));
  let place;

  // the bills of both counts, so that the axis stays when the messages are packed
  const axis = (by) =>
    plot.scalars(Object.values(by).flatMap(({ offers }) => offers.flatMap(({ dense, packed }) => [dense, packed])));

  const draw = () => {
    const by = problems[problem.select.value], how = count.select.value, bills = axis(by);
    const share = slider.input.value / TICKS;
    const budget = bills.low * (bills.high / bills.low) ** share;
    const { x } = bills;
    const range = plot.decades(Object.values(by).flatMap(({ offers }) => offers.map(({ regret }) => regret)));
    const y = plot.logarithmic(range.low, range.high, plot.bottom, plot.top);
    slider.says(`${plot.number(Number(budget.toPrecision(2)))} scalars`);
    plot.frame(svg, "final regret", x, bills.ticks, y, range.ticks, `scalars sent, ${how}`);
    place = x(budget);
    svg.append(plot.drawing("path", { d: `M${plot.left},${plot.top}H${place}V${plot.bottom}H${plot.left}z`, class: "within" }));
    const able = [], unable = [];
    for (const [name, { colour, offers }] of Object.entries(by)) {
      const sorted = [...offers].sort((a, b) => a[how] - b[how]);
      const at = sorted.map((offer) => [x(offer[how]), y(offer.regret)]);
      const best = sorted.filter((offer) => offer[how] <= budget).at(-1);
      svg.append(plot.line(at, colour, { "stroke-width": 1.5, opacity: best ? 0.8 : 0.5 }));
      at.forEach((point, k) => {
        const taken = sorted[k] === best;
        svg.append(plot.dot(...point, colour, { r: taken ? 6 : 3, opacity: sorted[k][how] <= budget ? 1 : 0.5 }));
      });
      if (best) able.push({ name, colour, ...best });
      else unable.push({ name, least: sorted[0][how] });
    }
    svg.append(plot.drawing("path", { d: `M${place},${plot.top}V${plot.bottom}`, class: "limit" }));
    able.sort((a, b) => a.regret - b.regret);
    unable.sort((a, b) => a.least - b.least);
    ranking.replaceChildren(...able.map((one) => item(one, how)));
    others.textContent = unable.length
      ? "These send more: " + unable.map(({ name, least }) => `${name} (at least ${plot.number(Math.round(least))})`).join(", ") + "."
      : "";
    const rank = able.findIndex(({ name }) => name === "Fed-GO-UCB") + 1;
    text.textContent =
      `${problem.select.value}, ${how}, at most ${plot.number(Number(budget.toPrecision(2)))} scalars: ` +
      (able.length ? `${able[0].name} has the lowest regret` : "every algorithm sends more") +
      (rank ? `; Fed-GO-UCB has rank ${rank} of ${able.length}.` : able.length ? "; Fed-GO-UCB sends more." : ".");
    svg.setAttribute("aria-label", `final regret over scalars sent, with a budget of ${plot.number(Number(budget.toPrecision(2)))}`);
  };

  function item({ name, colour, regret, error, gamma, ...bills }, how) {
    const mark = plot.drawing("svg", { viewBox: "0 0 10 10", class: "mark", "aria-hidden": true }, plot.dot(5, 5, colour, {}));
    const way = gamma ? `, γ = ${gamma}` : "";
    const numbers = `${plot.number(Math.round(regret))} ± ${plot.number(Math.round(error))}`;
    return plot.element("li", {}, mark, plot.element("b", {}, name), ` ${numbers}, ${plot.number(Math.round(bills[how]))} scalars${way}`);
  }

  const drag = (event) => {
    if (!(event.buttons & 1)) return;
    const { left, width } = svg.getBoundingClientRect();
    const at = ((event.clientX - left) * plot.width) / width;
    const { from } = axis(problems[problem.select.value]);
    slider.input.value = Math.round((TICKS * (at - from)) / (plot.right - from));
    draw();
  };
  svg.addEventListener("pointerdown", drag);
  svg.addEventListener("pointermove", drag);
  [problem.select, count.select].forEach((select) => select.addEventListener("change", draw));
  slider.input.addEventListener("input", draw);
  draw();
});
