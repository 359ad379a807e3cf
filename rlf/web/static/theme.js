"use strict";
// Before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("rlf-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is switched off: the system decides */ }
