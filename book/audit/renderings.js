// Of the two renderings of an image the one for the page's colours is shown; no filter changes it, and it has no frame.
() => {
  const wanted = document.documentElement.dataset.theme === "dark" ? "in-dark" : "in-light";
  const shown = [...document.querySelectorAll("article img")].filter((e) => e.getClientRects().length);
  const filter = (e) => getComputedStyle(e).filter;
  return [
    ...shown.filter((e) => !e.classList.contains(wanted)).map((e) => `not ${wanted}: the image ${e.alt.slice(0, 40)}`),
    ...shown.filter((e) => filter(e) !== "none").map((e) => `a filter, ${filter(e)}, changes the image ${e.alt.slice(0, 40)}`),
    ...shown.filter((e) => parseFloat(getComputedStyle(e).padding)).map((e) => `a frame around the image ${e.alt.slice(0, 40)}`),
  ];
}
