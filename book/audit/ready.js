// A page is ready to be looked at once its formulas and fonts are there; what it folds away is opened.
async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
}
