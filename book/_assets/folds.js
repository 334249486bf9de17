// A link into what is folded opens it: not every browser does so by itself. On paper all is open, code too.
const reveal = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folds = [];
  for (let node = target; node; node = node.parentElement) {
    if (node.matches("details.fold:not([open])")) folds.push(node);
  }
  for (const node of folds) node.open = true;
  if (folds.length) target.scrollIntoView();
};
addEventListener("DOMContentLoaded", reveal);
addEventListener("hashchange", reveal);
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll(".bd-article details:not([open])")];
  for (const node of opened) node.open = true;
});
addEventListener("afterprint", () => {
  for (const node of opened) node.open = false;
});

// What scrolls sideways can be reached with the keyboard; the theme sees to code and tables, but not to what is folded.
const SCROLLED = ".bd-article :is(pre, div.math, div.proof, figure.wide, .pst-scrollable-table-container)";
const reach = () => {
  for (const box of document.querySelectorAll(SCROLLED)) {
    box.tabIndex = box.scrollWidth > box.clientWidth + 1 ? 0 : -1;
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
document.addEventListener("toggle", reach, true);

// The theme's toggles in the side bar have no name.
addEventListener("DOMContentLoaded", () => {
  for (const toggle of document.querySelectorAll(".bd-sidebar-primary li > details > summary")) {
    toggle.setAttribute("aria-label", `Pages below "${toggle.closest("li").querySelector("a").textContent}"`);
  }
});
