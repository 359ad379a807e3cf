// One event stream for all tabs: the tab that holds the lock reads it and passes events on; without locks, polling.
const CHANNEL = "rlf-live", STREAM = "/api/v1/events", QUIET_MS = 3000, POLL_MS = 2000;
// The server is heard every 15 s: a stream that is silent for longer is dead, as after a suspension.
const LEAST_MS = 1000, REOPEN_MS = 3000, SILENT_MS = 40000;
const channel = "BroadcastChannel" in self ? new BroadcastChannel(CHANNEL) : null;
const clock = () => performance.now();  // of a machine whose time was set too
let started = false, last = clock(), pending = 0, refreshed = -LEAST_MS, asked = 0, again = false, reached = true;

// At most once a second, and not in a hidden tab, which catches up when it is shown. What happens while an answer is on
// its way may not be in it, so that it is asked for once more.
function refresh() {
  if (pending || document.hidden) return;
  again = asked > 0;
  if (again) return;
  pending = setTimeout(() => {
    pending = 0;
    refreshed = clock();
    for (const part of document.querySelectorAll("[data-live]")) htmx.trigger(part, "live");
  }, Math.max(150, refreshed + LEAST_MS - clock()));
}

// A list that is drawn again stays as long as it is.
document.addEventListener("htmx:configRequest", ({detail: {elt, parameters}}) => {
  if (elt.dataset.live === "runs") parameters.rows = elt.querySelectorAll("tbody tr[id]").length;
});
// An answer to a shorter one, which was under way while more was read, would end it earlier.
document.addEventListener("htmx:beforeSwap", ({detail}) => {
  const {elt, parameters} = detail.requestConfig;
  if (elt.dataset.live !== "runs" || elt.querySelectorAll("tbody tr[id]").length <= parameters.rows) return;
  detail.shouldSwap = false;
  again = true;
});
document.addEventListener("htmx:beforeRequest", ({detail: {elt, xhr}}) => {
  if (!elt.dataset.live) return;
  asked++;
  xhr.addEventListener("loadend", () => {
    asked--;
    again ||= xhr.status >= 500 || !xhr.status && reached;  // what failed is asked for again, if there is a server
    if (again && !asked) refresh();
  });
});

function receive(message) {
  if (message.kind === "lost") { connected(false); return; }
  last = clock();
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
  reached = is;
  const place = document.getElementById("connection");
  if (place) place.textContent = is ? "" : "reconnecting…";
  document.getElementById("content").classList.toggle("stale", !is);
}

// The stream: named events carry JSON with the run they are about. The browser tries a lost one again by itself, but not
// one that was refused, and it does not notice one that is dead.
class Stream {
  constructor() {
    this.open();
  }

  open() {
    this.source?.close();
    this.heard = clock();
    this.source = new EventSource(STREAM);
    for (const name of ["run", "now", "alive"]) this.source.addEventListener(name, event => this.pass(event));
    this.source.onopen = () => this.pass({data: "{}", type: "open"});
    this.source.onerror = () => this.pass({data: "{}", type: "lost"});
  }

  pass(event) {
    this.heard = clock();
    const message = {kind: event.type, ...JSON.parse(event.data)};
    receive(message);
    channel?.postMessage(message);
  }

  tend() {
    const silent = clock() - this.heard, refused = this.source.readyState === EventSource.CLOSED;
    if (silent > (refused ? REOPEN_MS : SILENT_MS)) this.open();
    if (this.source.readyState === EventSource.OPEN) channel.postMessage({kind: "alive"});
  }
}

async function hold() {
  if (!navigator.locks || !channel) return setInterval(refresh, POLL_MS);
  channel.onmessage = event => receive(event.data);
  await navigator.locks.request(CHANNEL, () => new Promise(() => {
    const stream = new Stream();
    setInterval(() => stream.tend(), 1000);
  }));
}

export function wake() {
  if (started) return;
  started = true;
  hold();
  refresh();  // what has happened since the page was written
  addEventListener("rlf:changed", refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (clock() - last > 20000) connected(false); }, QUIET_MS);
}
