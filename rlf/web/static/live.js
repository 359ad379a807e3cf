// One event stream for all tabs: the tab that holds the lock reads it and passes events on; without locks, polling.
const CHANNEL = "rlf-live", STREAM = "/api/v1/events", QUIET_MS = 3000, POLL_MS = 2000;
const channel = "BroadcastChannel" in self ? new BroadcastChannel(CHANNEL) : null;
const LEAST_MS = 1000;
let started = false, last = Date.now(), pending = 0, refreshed = 0, asked = 0, again = false;

// At most once a second, and not in a hidden tab, which catches up when it is shown. What happens while an answer is on
// its way may not be in it, so that it is asked for once more.
function refresh() {
  if (pending || document.hidden) return;
  again = asked > 0;
  if (again) return;
  pending = setTimeout(() => {
    pending = 0;
    refreshed = Date.now();
    for (const part of document.querySelectorAll("[data-live]")) htmx.trigger(part, "live");
  }, Math.max(150, refreshed + LEAST_MS - Date.now()));
}

// A list that is drawn again stays as long as it is.
document.addEventListener("htmx:configRequest", ({detail: {elt, parameters}}) => {
  if (elt.dataset.live === "runs") parameters.rows = elt.querySelectorAll("tbody tr[id]").length;
});
document.addEventListener("htmx:beforeRequest", ({detail: {elt, xhr}}) => {
  if (!elt.dataset.live) return;
  asked++;
  xhr.addEventListener("loadend", () => {
    asked--;
    again ||= xhr.status >= 500;  // an answer that failed, as under load, is asked for again
    if (again && !asked) refresh();
  });
});

function receive(message) {
  if (message.kind === "lost") { connected(false); return; }
  last = Date.now();
  connected(true);
  if (message.kind === "alive") return;
  if (message.kind === "now") { showNow(message); return; }
  if (message.kind === "open") { refresh(); return; }  // what changed while nobody listened
  const wanted = [...document.querySelectorAll("[data-live]")].map(part => part.dataset.live);
  if (wanted.includes("runs") || wanted.includes("jobs") || wanted.includes(message.run_id)) refresh();
}

function showNow({run_id, words}) {
  for (const place of document.querySelectorAll("[data-now]")) if (place.dataset.now === run_id) place.textContent = words;
}

function connected(is) {
  const place = document.getElementById("connection");
  if (place) place.textContent = is ? "" : "reconnecting…";
  document.getElementById("content").classList.toggle("stale", !is);
}

// The stream: named events carry JSON with the run they are about.
function readStream() {
  const source = new EventSource(STREAM);
  const pass = event => {
    let data = {};
    try { data = JSON.parse(event.data); } catch { /* a heartbeat */ }
    const message = {...data, kind: data.kind || event.type};
    receive(message);
    channel?.postMessage(message);
  };
  for (const name of ["run", "now", "alive"]) source.addEventListener(name, pass);
  source.onopen = () => pass({data: "{}", type: "open"});
  source.onerror = () => pass({data: "{}", type: "lost"});  // the browser tries again by itself
  return source;
}

async function hold() {
  if (!navigator.locks || !channel) return setInterval(refresh, POLL_MS);
  channel.onmessage = event => receive(event.data);
  await navigator.locks.request(CHANNEL, () => new Promise(() => {
    const source = readStream();
    setInterval(() => { if (source.readyState === EventSource.OPEN) channel.postMessage({kind: "alive"}); }, 1000);
  }));
}

export function wake() {
  if (started) return;
  started = true;
  hold();
  refresh();  // what has happened since the page was written
  addEventListener("rlf:changed", refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (Date.now() - last > 20000) connected(false); }, QUIET_MS);
}
