// The editor of a file: faults of `rlf check` while one types, keys of our schema, save with ETag, start.
import * as cm from "./vendor/codemirror.js";
import {post, read, request} from "./request.js";
import {keysOf, pathAt, schemasAt, valuesOf} from "./schema.js";
import {follow, toast} from "./app.js";

const CHECK_MS = 350;
const $ = id => document.getElementById(id);

export function wake() {
  const place = $("editor");
  if (place.dataset.woken) return;
  place.dataset.woken = "yes";
  open(place);
}

function open(place) {
  const {path, role} = place.dataset, field = place.querySelector("textarea"), narrow = matchMedia("(max-width: 760px) and (pointer: coarse)").matches;  // a phone, not a page at 200 %
  const readOnly = document.body.dataset.readOnly === "yes" || narrow;
  let etag = place.dataset.etag, saved = field.value, timer = 0, number = 0, schema = null, asked = new AbortController();
  const address = `/api/v1/specs/${path.split("/").map(encodeURIComponent).join("/")}`;

  const text = () => view.state.doc.toString();
  const overrides = () => ($("overrides")?.value.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) || []);

  function changed() {
    const dirty = text() !== saved;
    $("saved").textContent = dirty ? "not saved" : "saved";
    if ($("save")) $("save").disabled = !dirty;
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_MS);
  }

  async function check() {
    const mine = ++number;
    asked.abort();  // what was typed before is of no interest any more
    asked = new AbortController();
    $("checked").textContent = "checking…";
    try {
      const found = await post("/api/v1/check", {path, text: text(), overrides: overrides()}, asked.signal);
      if (mine !== number) return;
      show(found);
      if (found.ok && role === "spec") plan(mine);
    } catch (error) {
      if (mine !== number) return;
      $("checked").textContent = "not checked";
      $("checked").className = "status fail";
      $("faults").replaceChildren(Object.assign(document.createElement("li"), {textContent: error.message}));
    }
  }

  function show(found) {
    const all = [...found.faults.map(fault => ({...fault, kind: "error"})), ...(found.warnings || []).map(fault => ({...fault, kind: "warning"}))];
    const here = all.filter(fault => isHere(fault.place.file));
    view.dispatch(cm.setDiagnostics(view.state, here.map(diagnostic).sort((a, b) => a.from - b.from)));
    $("checked").textContent = found.faults.length ? `${found.faults.length} ${found.faults.length === 1 ? "fault" : "faults"}` : `ok${found.plan_hash ? `, plan ${found.plan_hash.slice(0, 12)}` : ""}`;
    $("checked").className = `status ${found.faults.length ? "fail" : "ok"}`;
    $("faults").replaceChildren(...all.map(line));
    $("plan").classList.toggle("stale", found.faults.length > 0);
  }

  const isHere = file => file === path || file.endsWith(`/${path}`) || path.endsWith(`/${file}`);

  function range(fault) {
    const row = view.state.doc.line(Math.min(Math.max(1, fault.place.line || 1), view.state.doc.lines));
    const from = Math.min(row.from + Math.max(0, (fault.place.column || 1) - 1), row.to);
    const word = row.text.slice(from - row.from).match(/^[\w.\-/]+/);
    return {from, to: Math.min(row.to, from + (word ? word[0].length : 1))};
  }

  const suggestion = fault => (fault.message.match(/did you mean '([^']+)'/) || [])[1];

  function diagnostic(fault) {
    const better = suggestion(fault);
    return {...range(fault), severity: fault.kind, message: fault.message, actions: better && !readOnly ? [{name: `write ${better}`, apply: (_, from, to) => replace(from, to, better)}] : []};
  }

  function replace(from, to, insert) { view.dispatch({changes: {from, to, insert}}); view.focus(); }

  function line(fault) {
    const item = document.createElement("li"), go = document.createElement("button");
    item.className = fault.kind;
    go.type = "button";
    go.className = "quiet";
    go.textContent = `${fault.place.line ? `${fault.place.line}:${fault.place.column}` : fault.place.file}${fault.path ? ` ${fault.path}` : ""}`;
    go.addEventListener("click", () => {
      if (!isHere(fault.place.file)) { location = `/specs/${fault.place.file}`; return; }
      view.dispatch({selection: {anchor: range(fault).from}, scrollIntoView: true});
      view.focus();
    });
    item.append(go, document.createElement("br"), fault.message);
    const better = suggestion(fault);
    if (better && isHere(fault.place.file) && !readOnly) {
      const fix = document.createElement("button");
      fix.type = "button";
      fix.dataset.fix = better;
      fix.textContent = `write ${better}`;
      fix.addEventListener("click", () => { const {from, to} = range(fault); replace(from, to, better); });
      item.append(" ", fix);
    }
    return item;
  }

  async function plan(mine) {
    try {
      const found = await post("/api/v1/plan", {path, text: text(), overrides: overrides()}, asked.signal);
      if (mine !== number) return;
      $("plan-title").hidden = false;
      $("plan").replaceChildren(...facts(found.report), ...changes(found));
    } catch { /* the check has reported what is wrong */ }
  }

  async function save(tag = etag) {
    const sent = text();  // typing goes on while the answer is awaited
    try {
      const answer = await request("PUT", address, {text: sent}, {"If-Match": `"${tag}"`});
      etag = answer.value.etag;
      saved = sent;
      changed();
      toast(`${path} is saved`);
    } catch (error) {
      if (error.status !== 412) { toast(error.message, true); return; }
      const theirs = await read(address);
      $("theirs").textContent = theirs.text;
      $("conflict").showModal();
      $("take-theirs").onclick = () => { etag = theirs.etag; saved = theirs.text; view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: theirs.text}}); $("conflict").close(); };
      $("keep-mine").onclick = () => { $("conflict").close(); save(theirs.etag); };
    }
  }

  const readSchema = () => (schema ??= read(`/api/v1/schema/${role}`).catch(() => { schema = null; }));

  async function complete(context) {
    const row = context.state.doc.lineAt(context.pos), before = row.text.slice(0, context.pos - row.from);
    const lines = context.state.doc.toString().split("\n"), word = before.match(/[\w.-]*$/)[0];
    const value = before.match(/(?:^|[{,]|- )\s*([\w.-]+):\s+[\w.-]*$/);
    const path = pathAt(lines, row.number - 1, before.length - (word.length && before.trim() === word ? word.length : 0));
    if (!word && !context.explicit && !value) return null;
    const from = context.pos - word.length, root = await readSchema();
    if (!root) return null;
    if (value) return {from, options: valuesOf(schemasAt(root, [...path, value[1]])).map(label => ({label, type: "enum"})), validFor: /^[\w.-]*$/};
    const present = new Set(lines.filter((line, at) => at !== row.number - 1 && line.match(/^ */)[0].length === row.text.match(/^ */)[0].length).map(line => line.match(/^\s*(?:- )?([\w.-]+):/)?.[1]));
    return {from, options: [...keysOf(schemasAt(root, path))].filter(([key]) => !present.has(key)).map(([label, detail]) => ({label, type: "property", info: detail, apply: `${label}: `})), validFor: /^[\w.-]*$/};
  }

  const style = cm.HighlightStyle.define([
    {tag: cm.tags.propertyName, class: "y-key"}, {tag: cm.tags.definition(cm.tags.propertyName), class: "y-key"}, {tag: cm.tags.string, class: "y-string"},
    {tag: cm.tags.content, class: "y-value"}, {tag: cm.tags.comment, class: "y-comment"}, {tag: cm.tags.punctuation, class: "y-comment"},
  ]);
  const view = new cm.EditorView({
    doc: field.value,
    extensions: [
      cm.EditorView.cspNonce.of(document.body.dataset.nonce || ""), cm.lineNumbers(), cm.lintGutter(), cm.history(), cm.drawSelection(), cm.highlightActiveLine(),
      cm.indentUnit.of("  "), cm.bracketMatching(), cm.closeBrackets(), cm.yaml(), cm.syntaxHighlighting(style), cm.search({top: true}), cm.highlightSelectionMatches(),
      cm.autocompletion({override: [complete], icons: false}), cm.EditorState.readOnly.of(readOnly), cm.EditorView.contentAttributes.of({"aria-label": path, tabindex: "0"}),
      cm.EditorView.updateListener.of(update => update.docChanged && changed()),
      cm.keymap.of([
        {key: "Mod-Enter", run: () => { clearTimeout(timer); check(); return true; }}, {key: "Mod-s", preventDefault: true, run: () => { if (!readOnly) save(); return true; }},
        ...cm.completionKeymap, ...cm.lintKeymap, ...cm.searchKeymap, ...cm.historyKeymap, ...cm.foldKeymap, ...cm.defaultKeymap,
        {key: "Escape", run: editor => { editor.contentDOM.blur(); return true; }},
      ]),
    ],
  });
  field.replaceWith(view.dom);
  if (!readOnly) view.contentDOM.addEventListener("focus", readSchema, {once: true});
  $("save")?.addEventListener("click", () => save());
  $("overrides")?.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, CHECK_MS); });
  $("start-form")?.addEventListener("submit", async event => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target)), button = event.submitter;
    button.disabled = true;
    try {
      if (text() !== saved) await save();
      if (text() !== saved) return;
      const answer = await post("/api/v1/runs", {files: [path], overrides: [...overrides(), ...fields.overrides.split("\n").map(part => part.trim()).filter(Boolean)], action: fields.action});
      await follow(answer, "starting…");
    } catch (error) { toast(error.message, true); } finally { button.disabled = false; }
  });
  addEventListener("beforeunload", event => { if (text() !== saved) event.preventDefault(); });
  check();
}

// The plan in figures: work, memory, time, what evaluations can show, and the values that were set.
function facts(found) {
  const {work, memory, fit, step_time: time, power} = found, list = document.createElement("dl"), size = bytes => bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(0)} MB`;
  list.className = "facts card";
  const add = (name, words) => {
    const term = document.createElement("dt"), value = document.createElement("dd");
    term.textContent = name;
    value.textContent = words;
    list.append(term, value);
  };
  const many = value => value.toLocaleString("en");
  add("training", `${many(work.num_steps)} steps, ${work.num_trajectories_is_bound ? "up to " : ""}${many(work.num_trajectories)} trajectories`);
  add("evaluation", work.num_evaluations ? `${work.num_evaluations} times ${many(work.num_questions)} questions` : "none");
  add("tokens", `at most ${many(work.max_tokens)}`);
  if (memory) add("memory", `${size(memory.total_bytes)}${fit ? ` of ${size(fit.size_bytes)}${fit.fits ? "" : ": does not fit"}` : ""}`);
  else if (found.memory_unknown) add("memory", found.memory_unknown);
  if (found.num_gpus) add("GPUs", String(found.num_gpus));
  add("time", time ? `${time.median_s.toFixed(1)} s a step, measured over ${time.num_steps}` : "not measured yet");
  if (power) add("shows", `differences of ${(100 * power.no_losses).toFixed(1)} to ${(100 * power.few_losses).toFixed(1)} points`);
  add("plan", found.plan_hash.slice(0, 12));
  const details = document.createElement("details"), summary = document.createElement("summary"), table = document.createElement("table");
  const set = found.values.filter(value => value.source !== "default");
  summary.textContent = `${set.length} of ${found.values.length} values are set`;
  for (const value of set) {
    const row = table.insertRow(), head = document.createElement("th");
    head.scope = "row";
    head.textContent = value.path;
    row.append(head);
    row.insertCell().textContent = typeof value.value === "string" ? value.value : JSON.stringify(value.value);
  }
  details.append(summary, table);
  return [list, details];
}

// Where the plan differs from the last run of the spec; each key leads to what its values did.
function changes({report, last_run: before, changes: found}) {
  if (!before) return [];
  const words = document.createElement("p"), link = document.createElement("a"), table = document.createElement("table");
  link.href = `/runs/${before}`;
  link.textContent = "the last run";
  words.id = "changes";
  words.append(found.length ? `${found.length} ${found.length === 1 ? "value differs" : "values differ"} from ` : "no value differs from ", link);
  const shown = value => value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value);
  for (const one of found.slice(0, 50)) {
    const row = table.insertRow(), head = document.createElement("th"), key = document.createElement("a");
    head.scope = "row";
    key.href = `/keys?${new URLSearchParams({spec: report.name, key: one.key})}`;
    key.textContent = one.key;
    head.append(key);
    row.append(head);
    row.insertCell().textContent = `${shown(one.before).slice(0, 80)} → ${shown(one.now).slice(0, 80)}`;
  }
  return [words, table];
}
