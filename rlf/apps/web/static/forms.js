// A tool's form from its schema, and the weights of rewards.
import {post} from "./request.js";
import {toast} from "./app.js";

const woken = new WeakSet();
export const make = (tag, text, className) => Object.assign(document.createElement(tag), text === undefined ? {} : {textContent: text}, className ? {className} : {});
const decimal = value => value == null ? "–" : value.toFixed(3).replace("-", "−");

export function wake() {
  for (const form of document.querySelectorAll("[data-form]")) if (!woken.has(form)) { woken.add(form); openTool(form); }
  for (const button of document.querySelectorAll("[data-try]")) if (!woken.has(button)) { woken.add(button); openTrials(button); }
  for (const form of document.querySelectorAll("[data-weights]")) if (!woken.has(form)) { woken.add(form); openWeights(form); }
}

// One field for each property; the JSON beside them is what is sent, and may be written by hand.
function openTool(form) {
  const schema = JSON.parse(document.getElementById("tool-schema").textContent), place = form.querySelector("[data-fields]"), raw = form.elements.raw;
  const required = new Set(schema.required || []), fields = [];
  for (const [name, about] of Object.entries(schema.properties || {})) {
    const label = make("label", `${name}${required.has(name) ? "" : ", optional"}`, "field"), input = fieldOf(about);
    label.append(input);
    if (about.description) label.append(make("small", about.description));
    input.addEventListener("input", () => { raw.value = JSON.stringify(collect(), null, 2); });
    fields.push([name, about, input]);
    place.append(label);
  }
  function collect() {
    const found = {};
    for (const [name, about, input] of fields) {
      if (input.value === "" && !required.has(name)) continue;
      found[name] = valueOf(about, input.value);
    }
    return found;
  }
  raw.value = JSON.stringify(collect(), null, 2);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const result = document.getElementById("tool-result");
    try {
      const body = {arguments: JSON.parse(raw.value), tool: form.dataset.tool};
      event.submitter.disabled = true;
      result.textContent = "calling…";
      result.replaceChildren(...showResult((await post(form.dataset.form, body)).result));
    } catch (error) { result.textContent = ""; toast(error.message, true); } finally { event.submitter.disabled = false; }
  });
}

export function fieldOf(about) {
  if (about.enum || about.type === "boolean") {
    const select = make("select");
    for (const value of ["", ...(about.enum || ["true", "false"])]) select.append(make("option", String(value)));
    return select;
  }
  const is = ["number", "integer"].includes(about.type), input = make(is || about.type === "string" ? "input" : "textarea");
  if (is) Object.assign(input, {type: "number", step: about.type === "integer" ? "1" : "any"});
  if (about.default !== undefined) input.placeholder = JSON.stringify(about.default);
  input.className = "wide";
  return input;
}

export function valueOf(about, text) {
  if (about.type === "string") return text;
  if (about.enum) return about.enum.find(value => String(value) === text) ?? text;
  try { return JSON.parse(text); } catch { return text; }
}

function showResult(result) {
  const head = make("p"), state = make("span", result.outcome, `status ${result.outcome === "ok" ? "ok" : "failed"}`);
  const facts = [`${(1000 * result.run_s).toFixed(1)} ms`, result.queue_s > 0.001 && `waited ${(1000 * result.queue_s).toFixed(1)} ms`, result.attempts.length > 1 && `${result.attempts.length} attempts`, result.cached && "from the cache", result.truncated && "cut", result.isolation].filter(Boolean);
  head.append(state, " ", make("span", facts.join(", "), "soft"));
  return [head, make("pre", result.text, "block")];
}

function openWeights(form) {
  const sliders = [...form.querySelectorAll("input[type=range]")];
  const show = () => sliders.forEach(slider => { slider.nextElementSibling.value = Number(slider.value).toFixed(2); });
  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  show();  // they may have been moved before this is here, or be as they were left
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const place = document.getElementById("rescored"), {run, phase, step} = form.dataset;
    const weights = Object.fromEntries(sliders.filter(slider => slider.value !== slider.dataset.was).map(slider => [slider.name, Number(slider.value)]));
    place.textContent = "scoring…";
    try {
      place.replaceChildren(...showMoves(await post("/api/v1/rewards/rescore", {run, phase, step: step ? Number(step) : null, weights})));
    } catch (error) { place.textContent = ""; toast(error.message, true); }
  });
}

// Each term on what it was tried on: its value, why, and what does not hold.
function openTrials(button) {
  button.addEventListener("click", async () => {
    const place = document.getElementById("tried");
    place.textContent = "trying…";
    button.disabled = true;
    try {
      const found = await post("/api/v1/rewards/test", {files: JSON.parse(button.dataset.try)});
      const state = one => make("span", one.ok === null ? "nothing to try" : one.ok ? "ok" : "failed", `status ${one.ok === null ? "" : one.ok ? "ok" : "fail"}`);
      place.replaceChildren(tableOf("rewards tried", [["term"], ["on"], ["value", "figure"], ["holds"], ["why"]], found.map(one => [one.term, one.what, decimal(one.value), state(one), [...one.shortfalls, one.reason].join("; ")])));
    } catch (error) { place.textContent = ""; toast(error.message, true); } finally { button.disabled = false; }
  });
}

function tableOf(label, columns, rows) {
  const scroll = make("div", undefined, "scroll"), table = make("table", undefined, "list"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const [word, style] of columns) head.append(Object.assign(make("th", word, style), {scope: "col"}));
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((cell, at) => { const made = row.insertCell(); made.append(cell); made.className = columns[at][1] || ""; });
  }
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", label);
  scroll.append(table);
  return scroll;
}

// Who changes place: the trajectories whose advantage changes most come first.
function showMoves(found) {
  const moved = found.trajectories.map(one => ({...one, by: Math.abs((one.after.advantage ?? 0) - (one.before.advantage ?? 0))})).sort((a, b) => b.by - a.by);
  const flipped = moved.filter(one => (one.before.advantage ?? 0) * (one.after.advantage ?? 0) < 0).length, changed = moved.filter(one => one.change).length;
  const words = make("p", `${changed} of ${moved.length} rewards change, ${flipped} advantages change their sign.${found.no_advantages ? ` ${found.no_advantages}` : ""}`);
  const columns = ["task", "reward", "after", "advantage", "after"].map((word, at) => [word, at ? "figure" : ""]);
  const figures = one => [one.before.reward, one.after.reward, one.before.advantage, one.after.advantage].map(decimal);
  return [words, tableOf("trajectories scored again", columns, moved.slice(0, 100).map(one => [one.task, ...figures(one)]))];
}
