// A world with a person as the policy: the actions so far are sent, and what they led to is shown.
import {post} from "./request.js";
import {toast} from "./app.js";
import {fieldOf, make, valueOf} from "./forms.js";

const woken = new WeakSet();
export function wake() {
  for (const place of document.querySelectorAll("[data-play]")) if (!woken.has(place)) { woken.add(place); open(place); }
}

function open(place) {
  const {play: spec, task} = place.dataset, state = place.querySelector("[data-state]"), scene = place.querySelector("[data-scene]"), moves = place.querySelector("[data-moves]");
  let actions = [], shown = [];

  async function look(next) {
    state.textContent = "playing…";
    for (const button of moves.querySelectorAll("button")) button.disabled = true;
    try {
      const found = await post("/api/v1/worlds/play", {spec, task: Number(task), actions: next});
      const differs = shown.slice(0, found.steps.length).some((step, at) => next[at] === actions[at] && step !== JSON.stringify(found.steps[at].said));
      actions = next;
      shown = found.steps.map(step => JSON.stringify(step.said));
      show(found);
      if (differs) toast("the world came out differently: the same actions led to something else", true);
    } catch (error) { state.textContent = ""; toast(error.message, true); } finally { for (const button of moves.querySelectorAll("button")) button.disabled = false; }
  }

  function show(found) {
    const rows = [];
    const put = (who, ...parts) => { const what = make("div", undefined, "what"); what.append(...parts); rows.push(make("div", who, "who"), what); };
    for (const [role, text] of found.messages) put(role, make("pre", text, "prompt"));
    if (found.observation) put("world", make("pre", found.observation, "fed"));
    found.steps.forEach((step, at) => {
      const words = typeof step.action === "string" ? step.action : `${step.action.name}(${JSON.stringify(step.action.arguments)})`;
      const parts = [make("pre", words, "sampled")];
      if (step.said) parts.push(make("pre", step.said, "fed"));
      for (const change of step.changes) if (change.difference) parts.push(make("pre", change.difference, "plain soft"));
      if (step.reward !== null) parts.push(make("p", `reward ${step.reward}`, "figure"));
      put(`action ${at + 1}`, ...parts);
    });
    if (found.failure) put("failed", make("pre", found.failure, "fed"));
    scene.replaceChildren(...rows);
    const scores = found.scores.map(([name, value]) => `${name} ${value}`).join(", ") || "none";
    state.textContent = `task ${task} of ${found.num_tasks}: ${found.task_id} · ${found.steps.length} actions · ${found.is_over ? "it is over" : "if it ended now"}: scores ${scores}`;
    moves.replaceChildren(...(found.is_over ? [] : found.tools.map(call)), words(found));
  }

  function call(tool) {
    const form = make("form", undefined, "card"), fields = [], schema = tool.input_schema || {};
    form.append(make("b", tool.name), " ", make("small", tool.description));
    for (const [name, about] of Object.entries(schema.properties || {})) {
      const label = make("label", name, "field"), input = fieldOf(about);
      label.append(input);
      form.append(label);
      fields.push([name, about, input]);
    }
    form.append(make("button", "Call"));
    form.addEventListener("submit", event => {
      event.preventDefault();
      const filled = fields.filter(([name, , input]) => input.value !== "" || (schema.required || []).includes(name));
      look([...actions, {name: tool.name, arguments: Object.fromEntries(filled.map(([name, about, input]) => [name, valueOf(about, input.value)]))}]);
    });
    return form;
  }

  function words(found) {
    const form = make("form", undefined, "card"), label = make("label", found.speaks ? "Say to the world" : "Say, which ends the episode", "field"), text = make("textarea"), undo = make("button", "Take the last action back");
    text.rows = 2;
    label.append(text);
    undo.type = "button";
    undo.addEventListener("click", () => look(actions.slice(0, -1)));
    if (!found.is_over) form.append(label, make("button", "Say"));
    if (actions.length) form.append(" ", undo);
    form.addEventListener("submit", event => { event.preventDefault(); if (text.value.trim()) look([...actions, text.value.trim()]); });
    return form;
  }

  look([]);
}
