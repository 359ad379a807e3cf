// A conversation with a run's model, which a job serves; it is kept in this tab alone.
import {post, read} from "./request.js";
import {toast} from "./app.js";

const woken = new WeakSet();
export function wake() {
  for (const place of document.querySelectorAll("[data-chat]")) if (!woken.has(place)) { woken.add(place); open(place); }
}

function open(place) {
  const address = place.dataset.chat, form = place.querySelector("form"), lines = place.querySelector(".turns"), state = place.querySelector("[role=status]");
  let messages = [];
  function put(who, text, kind) {
    const side = Object.assign(document.createElement("div"), {className: "who", textContent: who}), what = Object.assign(document.createElement("div"), {className: "what"});
    what.append(Object.assign(document.createElement("pre"), {className: kind, textContent: text}));
    lines.append(side, what);
    what.scrollIntoView({block: "nearest"});
  }
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const text = form.elements.text.value.trim();
    if (!text) return;
    const asked = [...messages, {role: "user", content: text}], button = form.querySelector("button");
    button.disabled = true;
    state.textContent = "the model answers…";
    try {
      const answer = await post(address, {messages: asked});
      put("you", text, "prompt");
      put("model", answer.content, "sampled");
      messages = [...asked, {role: "assistant", content: answer.content}];
      form.reset();
      state.textContent = answer.num_tokens == null ? "" : `${answer.num_tokens} tokens`;
    } catch (error) { state.textContent = ""; toast(error.message, true); } finally { button.disabled = false; form.elements.text.focus(); }
  });
  place.querySelector("[data-again-chat]").addEventListener("click", () => { messages = []; lines.replaceChildren(); form.elements.text.focus(); });
  (async () => {  // a model that is loading becomes ready, or its job ends
    while (place.dataset.state === "loading" && place.isConnected) {
      await new Promise(done => setTimeout(done, 1000));
      const job = await read(`/api/v1/jobs/${place.dataset.job}`);
      if (job.address || job.state !== "running") location.reload();
    }
  })();
}
