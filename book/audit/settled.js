// After a change of size or colours: two frames for the layout, and whatever still moves is at its end.
() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  document.getAnimations().forEach((animation) => animation.cancel());
  done();
})))
