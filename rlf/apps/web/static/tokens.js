// The read-out of a token: under the pointer, or where the arrow keys stand.
const woken = new WeakSet();
export function wake() {
  const box = document.querySelector(".tokens"), readout = document.getElementById("token-readout");
  if (!box || woken.has(box)) return;
  woken.add(box);
  box.dataset.woken = "yes";
  let at = null;
  const show = token => {
    at?.classList.remove("at");
    at = token;
    token.classList.add("at");
    const {i, id, l, a, t} = token.dataset, sampled = token.classList.contains("in-loss");
    const why = sampled ? "in the policy loss: the policy sampled it" : `not in the policy loss: ${t ? `template or result after turn ${t}` : "the prompt"}`;
    readout.textContent = [`token ${i}`, `id ${id}`, JSON.stringify(token.textContent), l && `p ${Math.exp(l).toFixed(4)}`, l && `ln p ${l.replace("-", "−")}`, a && `advantage ${a.replace("-", "−")}`, why].filter(Boolean).join("   ");
  };
  box.addEventListener("pointerover", event => event.target.matches("span") && show(event.target));
  box.addEventListener("keydown", event => {
    const next = {ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling"}[event.key];
    if (!next) return;
    const token = at ? at[next] : box.firstElementChild;
    if (token) { show(token); token.scrollIntoView({block: "nearest"}); }
    event.preventDefault();
  });
}
