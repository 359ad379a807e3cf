"use strict";
// Before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("rlf-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is switched off: the system decides */ }
// A button that is pressed before the page's scripts have come is pressed again when they have.
const early = [];
function keepClick(event) {
  const button = event.target.closest?.("button");
  if (!button) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  early.push(button);
}
function pressEarly() {
  removeEventListener("click", keepClick, true);
  for (const button of early.splice(0)) button.click();
}
addEventListener("click", keepClick, true);
addEventListener("rlf:awake", pressEarly);
setTimeout(pressEarly, 20000);  // of a page whose scripts never come
