// A drawing in the page itself says what is seen, as the alternative text of an image does.
() => [...document.querySelectorAll("article svg:not(button svg, mjx-container svg, [aria-hidden=true])")]
  .map((e) => e.getAttribute("aria-label") ?? "").filter((label) => label.length < 20)
  .map((label) => `a drawing has the label '${label}'`)
