// A link into what is folded opens it: not every browser does so by itself. On paper all is open.
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
addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll("details.fold")) node.open = true;
});
