"use strict";
// The read-out of a chart: the values of the step under the pointer, or that the arrow keys chose.
for (const svg of document.querySelectorAll("svg[data-values]")) {
  const lines = JSON.parse(svg.dataset.values), cursor = svg.querySelector(".cursor");
  const readout = svg.parentElement.querySelector(".readout"), width = svg.viewBox.baseVal.width;
  const places = [...new Map(lines.flatMap(line => line[1].map(point => [point[0], point[1]]))).entries()].sort((a, b) => a[0] - b[0]);
  let at = places.length - 1;
  const show = index => {
    at = Math.max(0, Math.min(places.length - 1, index));
    const [x, step] = places[at];
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.style.visibility = "visible";
    const found = lines.flatMap(([name, points]) => points.filter(point => point[0] === x).map(point => `${name} ${point[2]}`));
    readout.textContent = `step ${step}: ${found.join("   ")}`;
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    show(places.reduce((best, place, index) => Math.abs(place[0] - x) < Math.abs(places[best][0] - x) ? index : best, 0));
  });
  svg.addEventListener("keydown", event => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { show(at + move); event.preventDefault(); }
  });
}
// A link to a question opens it.
const open = () => {
  const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (found && found.tagName === "DETAILS") { found.open = true; found.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
for (const search of document.querySelectorAll("input[type=search]")) {
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase();
    for (const item of search.closest("section").querySelectorAll("details.flip")) item.hidden = !item.textContent.toLowerCase().includes(words);
  });
}
