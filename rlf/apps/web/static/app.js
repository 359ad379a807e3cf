// What every page has: theme, keys, copying, dialogs, requests, and the islands that a page asks for.
import {post, read, request} from "./request.js";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function toast(words, bad = false) {
  const one = document.createElement("div");
  one.textContent = words;
  one.classList.toggle("bad", bad);
  $("#toast").append(one);
  setTimeout(() => one.remove(), bad ? 12000 : 5000);
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches, root = document.documentElement;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("rlf-theme", root.dataset.theme); } catch { /* kept for this page alone */ }
  dispatchEvent(new Event("rlf:theme"));
}

// --- the chosen runs: they stay chosen when the list is drawn again ---
const chosen = new Set(JSON.parse(sessionStorage.getItem("rlf-chosen") || "[]"));
function showChosen() {
  for (const box of $$("[data-choose]")) box.checked = chosen.has(box.value);
  for (const button of $$("[data-act=compare], [data-act=curves]")) {
    button.disabled = chosen.size < 1;
    $("[data-count]", button)?.replaceChildren(chosen.size || "");
  }
  sessionStorage.setItem("rlf-chosen", JSON.stringify([...chosen]));
}
function openChosen(place) {
  if (!chosen.size) return;
  location = `/${place}?` + new URLSearchParams([...chosen].map(id => ["a", id]));
}

const ACTS = {theme: switchTheme, keys: () => $("#keys").showModal(), compare: () => openChosen("compare"), curves: () => openChosen("curves")};

async function run(button, work) {
  button.disabled = true;
  try { await work(); } catch (error) { toast(error.message, true); } finally { button.disabled = false; }
}

document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  const {act, copy, open, post: address, delete: stopped, to, words} = button.dataset;
  if (act && ACTS[act]) ACTS[act]();
  if (copy) navigator.clipboard.writeText(copy).then(() => toast("copied"), () => toast(copy));
  if (open) document.getElementById(open).showModal();
  if ("close" in button.dataset) button.closest("dialog").close();
  if (address) run(button, async () => { const answer = await post(address, {}); if (to) location = to; else await follow(answer, words); });
  if (button.dataset.pin) run(button, async () => { await post(`/api/v1/runs/${button.dataset.pin}/tags`, {tags: ["pinned"], remove: button.ariaPressed === "true"}); dispatchEvent(new Event("rlf:changed")); });
  if (button.dataset.column) {
    const field = button.form.elements.cols, names = field.value.split(",").map(one => one.trim()).filter(Boolean), at = names.indexOf(button.dataset.column);
    at < 0 ? names.push(button.dataset.column) : names.splice(at, 1);
    field.value = names.join(", ");
  }
  if (stopped) run(button, async () => { 
    await request("DELETE", stopped);
    for (let tries = 0; "then" in button.dataset && tries < 75; tries++) {
      if ((await read(stopped)).state !== "running") { location.reload(); return; }
      await new Promise(done => setTimeout(done, 400));
    }
    dispatchEvent(new Event("rlf:changed"));
  });
});

// What was started is a job: once it names its run, that is the page to see; one that ends before is seen among the jobs.
export async function follow(answer, words) {
  if (words) toast(words);
  let job = answer;
  if (!job?.action) { dispatchEvent(new Event("rlf:changed")); return; }
  const writes = job.action === "export";
  for (let tries = 0; (writes || !job.run_id && !job.address) && job.state === "running" && tries < 120; tries++) {
    await new Promise(done => setTimeout(done, 400));
    job = await read(`/api/v1/jobs/${job.id}`);
  }
  if (writes && job.state === "done") { location = `/api/v1/jobs/${job.id}/pages`; toast("the pages are in your downloads"); return; }
  if (writes) job.run_id = null;
  location = job.address ? job.address : job.run_id ? `/runs/${job.run_id}` : `/jobs#job-${job.id}`;
}

document.addEventListener("change", event => {
  const box = event.target;
  if ("choose" in box.dataset) {
    chosen[box.checked ? "add" : "delete"](box.value);
    showChosen();
  }
});

document.addEventListener("submit", event => {
  const form = event.target, data = form.dataset;
  const fields = Object.fromEntries(new FormData(form));
  const done = work => { event.preventDefault(); run(event.submitter, async () => { await work(); form.closest("dialog")?.close(); }); };
  if (data.fork) done(async () => await follow(await post(`/api/v1/runs/${data.fork}/fork`, {step: Number(fields.step), overrides: fields.overrides.split("\n").map(line => line.trim()).filter(Boolean)}), "the fork has started"));
  if (data.branch) done(async () => await follow(await post(data.branch, {turn: Number(fields.turn), samples: Number(fields.samples), observation: fields.observation || null}), "playing…"));
  if (data.label) done(async () => {
    const {value} = event.submitter, number = fields.number.trim() === "" ? null : Number(fields.number);
    await post(data.label, {label: value === "number" ? number : value ? value === "true" : null, kind: fields.kind, comment: fields.comment});
    if (data.next) location = data.next; else location.reload();
  });
  if (data.tag) done(async () => {
    const words = text => text.split(/\s+/).filter(Boolean), before = words(form.elements.tags.defaultValue), now = words(fields.tags);
    const added = now.filter(tag => !before.includes(tag)), gone = before.filter(tag => !now.includes(tag));
    if (added.length) await post(`/api/v1/runs/${data.tag}/tags`, {tags: added});
    if (gone.length) await post(`/api/v1/runs/${data.tag}/tags`, {tags: gone, remove: true});
    const named = form.elements.name.defaultValue, name = fields.name.trim();
    if (name !== named) {
      if (named) await post(`/api/v1/runs/${data.tag}/tags`, {tags: [`name=${named}`], remove: true});
      if (name) await post(`/api/v1/runs/${data.tag}/tags`, {tags: [`name=${name}`]});
    }
    if (fields.note.trim()) await post(`/api/v1/runs/${data.tag}/notes`, {text: fields.note.trim()});
    location.reload();
  });
  if ("make" in data) done(async () => {
    const text = fields.copy ? (await read(`/api/v1/specs/${fields.copy}`)).text : "";
    const path = `${fields.folder}/${fields.name.replace(/\.ya?ml$/, "")}.yaml`;
    await request("PUT", `/api/v1/specs/${path}`, {text}).catch(error => { throw error.status === 412 ? new Error(`${path} is there already`) : error; });
    location = `/specs/${path}`;
  });
  if (data.json) done(async () => {
    const answer = await post(data.json, fields);
    if (data.to) location = data.to; else if ("again" in data) location.reload(); else await follow(answer, data.words);
  });
});

// --- keys ---
const PLACES = {r: "/runs", c: "/compare", s: "/specs", t: "/tools", w: "/rewards", p: "/worlds", d: "/data", j: "/jobs"};
let going = -Infinity;
function rows() { return $$(".list tbody tr:not(.more, .of-group)"); }
function move(step) {
  const walk = $(`[data-walk="${step > 0 ? "next" : "previous"}"]`);
  if (walk) { if (!walk.hasAttribute("aria-disabled")) walk.click(); return; }
  const all = rows(), at = all.findIndex(row => row.classList.contains("at"));
  const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
  if (!next) return;
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector("a")?.focus({preventScroll: true});
  next.scrollIntoView({block: "nearest"});
}
function moveTurn(step) {
  const turns = $$(".what[id^=turn-]"), at = turns.findIndex(turn => `#${turn.id}` === location.hash);
  const next = turns[Math.max(0, Math.min(turns.length - 1, at + step))];
  if (next) location.hash = next.id;
}
const KEYS = {
  "/": () => $("input[type=search]")?.focus(),
  "?": ACTS.keys,
  j: () => move(1), k: () => move(-1),
  "]": () => moveTurn(1), "[": () => moveTurn(-1),
  v: () => $("[data-views] [aria-current] + a, [data-views] a:first-child")?.click(),
  x: () => $("tr.at [data-choose]")?.click(),
  "+": () => $("form[data-label] [value=true]")?.click(), "-": () => $("form[data-label] [value=false]")?.click(),
  c: ACTS.compare, u: ACTS.curves,
};
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select, .cm-editor, dialog[open]")) {
    if (event.key === "Escape" && event.target.matches("input[type=search]")) event.target.blur();
    return;
  }
  if (event.timeStamp - going < 1200 && PLACES[event.key]) { going = -Infinity; location = PLACES[event.key]; event.preventDefault(); return; }
  if (event.key === "g") { going = event.timeStamp; return; }
  const act = KEYS[event.key];
  if (act) { act(); event.preventDefault(); }
});

// --- islands, loaded where a page has them; drawn again where a part of it is replaced ---
const ISLANDS = [
  ["script.curves", "./chart.js"], ["[data-live]", "./live.js"], ["#editor", "./editor.js"],
  [".tokens", "./tokens.js"], ["[data-play]", "./play.js"], ["[data-chat]", "./chat.js"], ["[data-form], [data-weights], [data-try], #declared", "./forms.js"], ["[data-report]", "./report.js"],
];
async function wake() {
  showChosen();
  document.activeElement?.closest(".list tbody tr")?.classList.add("at");  // of a list that was drawn again
  for (const [selector, module] of ISLANDS) if ($(selector)) (await import(module)).wake?.();
}
document.addEventListener("htmx:afterSettle", wake);
// A part that cannot be had says why; one that is gone is not asked for again.
document.addEventListener("htmx:responseError", event => {
  const {xhr, elt} = event.detail, page = new DOMParser().parseFromString(xhr.responseText, "text/html");
  const words = page.querySelector(".fault pre")?.textContent || `${xhr.status} ${xhr.statusText}`;
  elt.querySelector("[role=status]")?.replaceChildren(words);
  toast(words, true);
  if (xhr.status === 404) delete elt.dataset.live;
});
wake().finally(() => dispatchEvent(new Event("rlf:awake")));
