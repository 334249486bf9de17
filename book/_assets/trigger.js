// The trigger in slow motion: every client's n·L rises until one exceeds γ; then all synchronise and begin at 0.
"use strict";

plot.register("trigger", (box, { scenes }) => {
  const choice = plot.choice("scene", Object.keys(scenes));
  const slider = plot.slider("step", 1, 0);
  const [play, step, next] = ["play", "one step", "to the next synchronisation"].map((name) =>
    plot.element("button", { type: "button", class: "btn btn-sm" }, name),
  );
  const PACE = 100; // milliseconds for a step
  const controls = plot.controls(choice.label, play, step, next, slider.label);
  const [bars, regret] = [plot.panel(), plot.panel()], text = plot.say();
  box.append(controls, bars, regret, text);
  let scene, total, timer;

  const open = () => {
    scene = scenes[choice.select.value];
    let sum = 0;
    total = scene.arm.map((arm) => (sum += scene.loss[arm]));
    slider.input.max = scene.arm.length - 1;
    slider.input.value = Math.max(0, (scene.fires.at(-1) ?? 0) - scene.clients); // a round before the last synchronisation
    draw();
  };

  const draw = () => {
    const at = Number(slider.input.value);
    slider.says(`${plot.number(scene.first + at)}`);
    clients(at);
    cost(at);
    const client = (scene.first - 1 + at) % scene.clients, arm = scene.arm[at], fires = scene.fires.includes(at);
    text.textContent =
      `Step ${plot.number(scene.first + at)} of Phase II: client ${client + 1} pulls arm ${arm + 1}, with regret ${plot.number(scene.loss[arm])}; ` +
      `its n·L is ${plot.number(scene.level[at])}. ` +
      (fires ? `That is more than γ = ${scene.gamma}: all ${scene.clients} clients synchronise.` : "The client sends nothing.");
  };

  function clients(at) {
    const { clients: many, gamma, fires, arm, level, colours, first } = scene;
    const x = plot.linear(0, many, plot.left, plot.right), y = plot.linear(0, 1.3 * gamma, plot.bottom - 12, plot.top);
    const begin = fires.filter((fired) => fired < at).at(-1) ?? -1;
    const heights = new Array(many).fill(0), pulled = new Array(many).fill(null);
    for (let k = 0; k <= at; k++) pulled[(first - 1 + k) % many] = arm[k];
    for (let k = begin + 1; k <= at; k++) heights[(first - 1 + k) % many] = level[k];
    plot.frame(bars, "n·L of every client", x, [], y, [0, gamma], `client 1 to ${many}`);
    const wide = (plot.right - plot.left) / many, turn = (first - 1 + at) % many;
    heights.forEach((height, i) => {
      const colour = pulled[i] === null ? "none" : colours[pulled[i]];
      const top = y(Math.min(height, 1.3 * gamma)), left = x(i) + 0.1 * wide;
      bars.append(
        plot.drawing("rect", { x: left, y: top, width: 0.8 * wide, height: y(0) - top, fill: colour }),
        plot.drawing("rect", { x: left, y: plot.bottom - 10, width: 0.8 * wide, height: 10, fill: colour }),
      );
    });
    const peak = Math.max(plot.top, y(Math.min(heights[turn], 1.3 * gamma)) - 4), middle = x(turn + 0.5);
    bars.append(
      plot.drawing("path", { d: `M${plot.left},${y(gamma)}H${plot.right}`, class: fires.includes(at) ? "limit crossed" : "limit" }),
      plot.drawing("text", { x: plot.right, y: y(gamma) - 5, "text-anchor": "end", class: "name" }, `γ = ${gamma}`),
      plot.drawing("path", { d: `M${middle - 5},${peak - 8}h10l-5,8z`, class: "turn" }),
    );
    bars.setAttribute("aria-label", `n·L of ${many} clients, the highest ${plot.number(Math.max(...heights))}, against γ = ${gamma}`);
  }

  function cost(at) {
    const last = scene.arm.length, top = total.at(-1) || 1;
    const x = plot.linear(scene.first, scene.first + last - 1, plot.left, plot.right), y = plot.linear(0, top, plot.bottom, plot.top);
    plot.frame(regret, "regret since the first step shown", x, [scene.first, scene.first + last - 1], y, [0, top], "step; marks: synchronisations");
    const marks = scene.fires.map((k) => `M${x(scene.first + k).toFixed(1)},${plot.bottom}v-8`).join("");
    const path = total.map((value, k) => [x(scene.first + k), y(value)]);
    regret.append(
      plot.drawing("path", { d: marks || "M0,0", class: "axis" }),
      plot.line(path, "#D55E00", { opacity: 0.35, "stroke-width": 2 }),
      plot.line(path.slice(0, at + 1), "#D55E00", { "stroke-width": 3 }),
      plot.dot(...path[at], "#D55E00", { r: 6 }),
    );
    regret.setAttribute("aria-label", `regret since the first step shown: ${plot.number(total[at])} of ${plot.number(top)}`);
  }

  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "play";
    text.setAttribute("aria-live", "polite");
  };
  const move = (to) => {
    slider.input.value = to;
    draw();
  };
  const start = () => {
    const end = Number(slider.input.max);
    if (Number(slider.input.value) === end) move(0);
    text.setAttribute("aria-live", "off"); // what changes ten times a second is not read out
    play.textContent = "pause";
    timer = setInterval(() => {
      if (Number(slider.input.value) === end) stop();
      else move(Number(slider.input.value) + 1);
    }, PACE);
  };
  play.addEventListener("click", () => (timer ? stop() : start()));
  step.addEventListener("click", () => (stop(), move(Number(slider.input.value) + 1)));
  next.addEventListener("click", () => (stop(), move(scene.fires.find((k) => k > slider.input.value) ?? slider.input.max)));
  slider.input.addEventListener("input", () => (stop(), draw()));
  choice.select.addEventListener("change", () => (stop(), open()));
  open();
});
