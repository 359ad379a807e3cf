// Curves with bands by uPlot, each with its table; values come as JSON in the page.
import uPlot from "./vendor/uplot.js";

const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]], BAND_POINTS = 30, drawn = new WeakMap(), shown = new WeakMap();
// A custom property that holds light-dark() is read back as such: a probe tells the colour it is.
function resolve(name) {
  const probe = document.createElement("i");
  probe.className = `probe ${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
const alpha = (rgb, share) => `rgba(${rgb.match(/[\d.]+/g).slice(0, 3).join(", ")}, ${share})`;

const words = (value, share) => value == null ? "–" : share ? `${(100 * value).toFixed(1)} %` : Math.abs(value) >= 1e9 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toFixed(3));

// How curves are looked at: by what, on which scale, how smooth. A page may have a form for it, and the arms' moments.
const PLAIN = {x: "step", log: false, smooth: 0, arms: []};
function readView() {
  const form = document.querySelector("form[data-view]");
  if (!form) return PLAIN;
  const fields = new FormData(form), arms = document.querySelector("script.arms");
  return {x: fields.get("x"), log: fields.has("log"), smooth: Number(fields.get("smooth")), arms: JSON.parse(arms.textContent)};
}

// The moment of a step; the first evaluation is before any step.
function moment(step, arm, x) {
  const at = arm.steps.findLastIndex(one => one <= step);
  return at < 0 ? 0 : arm[x][at];
}
function smooth(points, weight) {
  let sum = 0, share = 0;  // the mean of what came before, each step back counting less; the first values are no start at 0
  return points.map(([x, y]) => { sum = weight * sum + (1 - weight) * y; share = weight * share + 1 - weight; return [x, sum / share]; });
}
function look(chart, view) {
  const known = ([step, ...ys]) => [step, ...(chart.share ? ys.map(y => Math.min(1, Math.max(0, y))) : ys)];  // a share of few seeds
  const lines = chart.lines.flatMap(line => {
    const arm = view.arms[line.colour] ?? view.arms[0], moved = ([step, ...ys]) => [view.x === "step" || !arm ? step : moment(step, arm, view.x), ...ys];
    const onScale = ys => !view.log || ys.every(y => y > 0);
    const points = line.points.map(moved).filter(([, y]) => onScale([y])), band = line.band.map(known).map(moved).filter(([, ...ys]) => onScale(ys));
    return view.smooth ? [{...line, points, band: [], faint: true}, {...line, points: smooth(points, view.smooth), band}] : [{...line, points, band}];
  });
  return {...chart, lines};
}

// Lines of [x, y] and bands of [x, low, high], aligned on one x as uPlot wants them.
function align(whole, view = PLAIN) {
  const chart = look(whole, view);
  const xs = [...new Set(chart.lines.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b);
  const columns = [xs], series = [{label: view.x, value: (_, value) => value == null ? "–" : UNITS[view.x](value)}], bands = [], bars = [];
  for (const line of chart.lines) {
    const stroke = resolve(`probe-${line.colour % 8}`), at = new Map(line.points), low = new Map(line.band.map(([x, y]) => [x, y])), high = new Map(line.band.map(([x, , y]) => [x, y]));
    columns.push(xs.map(x => at.get(x) ?? null));
    if (line.faint) { series.push({faint: true, label: "", stroke: alpha(stroke, .3), width: 1, spanGaps: true, points: {show: false}, class: "edge"}); continue; }
    series.push({label: line.name || chart.title, stroke, width: 1.75, dash: DASHES[line.colour % 4], spanGaps: true, points: {show: () => line.points.length < 30, size: 4, fill: stroke}, value: (_, value) => words(value, chart.share)});
    if (line.band.length) {
      const edge = {show: true, stroke: "transparent", width: 0, points: {show: false}, spanGaps: true, label: "", class: "edge"};
      columns.push(xs.map(x => high.get(x) ?? null), xs.map(x => low.get(x) ?? null));
      series.push({...edge}, {...edge});
      const between = {series: [series.length - 2, series.length - 1], fill: alpha(stroke, .15), stroke};
      (line.band.length < BAND_POINTS ? bars : bands).push(between);
    }
  }
  return {columns, series, bands, bars};
}

// Nothing was measured between a few intervals: each is a bar at its place, and no band joins them.
function drawBars(self, bars) {
  const {ctx} = self, wide = 4 * devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(self.bbox.left - wide, self.bbox.top, self.bbox.width + 2 * wide, self.bbox.height);
  ctx.clip();
  ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const {series: [high, low], stroke} of bars) {
    if (!self.series[low].show) continue;
    ctx.strokeStyle = stroke;
    ctx.beginPath();
    self.data[0].forEach((at, place) => {
      if (self.data[low][place] == null) return;
      const x = self.valToPos(at, "x", true), ends = [low, high].map(one => self.valToPos(self.data[one][place], "y", true));
      if (x < self.bbox.left || x > self.bbox.left + self.bbox.width) return;
      ctx.moveTo(x, ends[0]); ctx.lineTo(x, ends[1]);
      for (const y of ends) { ctx.moveTo(x - wide, y); ctx.lineTo(x + wide, y); }
    });
    ctx.stroke();
  }
  ctx.restore();
}

function table() {
  const details = document.createElement("details"), made = document.createElement("table"), summary = document.createElement("summary");
  let chart = null;
  summary.textContent = "table";
  details.append(summary, made);
  function fill() {
    made.replaceChildren();
    if (!details.open) return;
    const head = made.createTHead().insertRow(), body = made.createTBody(), {columns, series} = align(chart);
    for (const word of ["step", ...chart.lines.map(line => line.name || chart.title)]) head.append(Object.assign(document.createElement("th"), {scope: "col", textContent: word}));
    columns[0].forEach((x, place) => {
      const row = body.insertRow();
      row.insertCell().textContent = x;
      series.forEach((one, index) => { if (index && one.label) row.insertCell().textContent = words(columns[index][place], chart.share); });
    });
  }
  details.addEventListener("toggle", fill);
  return [details, now => { chart = now; fill(); }];
}

// Where there are several lines, each value has its line's look, and a short name; longer ones are those of the runs.
function read(target, chart, valueOf, before = "") {
  const several = chart.lines.length > 1, parts = chart.lines.map((line, at) => {
    const part = document.createElement("span"), key = document.createElement("i"), name = several && line.name.length < 9 ? `${line.name}\u00a0` : "";
    key.className = `key probe-${line.colour % 8} dash-${line.colour % 4}`;
    part.append(...(several ? [key] : []), name + words(valueOf(line, at), chart.share).replaceAll(" ", "\u00a0"));
    return [part, "   "];
  });
  target.replaceChildren(before, ...parts.flat().slice(0, -1));
}
const newest = line => line.points.at(-1)[1];

// A chart in its place: what it shows can change, and it is destroyed with its listeners.
function figure(target, first, view) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), last = document.createElement("span"), place = document.createElement("div");
  const [details, fill] = table();
  let chart = first;
  figure.className = "plot";
  const title = document.createElement(target.dataset.enlarge ? "a" : "span"), big = "big" in target.dataset;
  title.textContent = chart.title;
  if (target.dataset.enlarge) Object.assign(title, {href: `${target.dataset.enlarge}&m=${encodeURIComponent(chart.name)}`, title: "at full size: zoom, smoothing, scale, x"});
  last.className = "figure";
  caption.append(title, last);
  place.setAttribute("role", "img");
  figure.append(caption, place, details);
  const note = document.createElement("p");
  note.className = "soft note";
  place.after(note);
  target.append(figure);
  const end = () => read(last, chart, newest);
  const drawn = plot(place, chart, last, end, view, big);
  if (big) caption.append(Object.assign(document.createElement("button"), {type: "button", className: "quiet", textContent: "all of it", title: "ends a zoom, as a double click does", onclick: drawn.whole}));
  function show(now) {
    chart = now;
    if (!big) end();
    note.textContent = chart.note || "";
    place.setAttribute("aria-label", `${chart.title}: ${chart.lines.map(line => `${line.name} ${words(newest(line), chart.share)}`.trim()).join("   ")}`);
    fill(chart);
  }
  show(chart);
  return {update: (now, view) => { show(now); drawn.setData(align(now, view).columns); }, remove: () => { drawn.destroy(); figure.remove(); }};
}

const shapeOf = charts => JSON.stringify(charts.map(chart => [chart.title, chart.share, chart.lines.map(line => [line.name, line.colour, line.band.length > 1])]));
function draw(target, charts, force) {
  const view = readView(), before = shown.get(target), shape = shapeOf(charts) + view.x + view.log + view.smooth;
  if (before?.shape === shape && !force) { charts.forEach((chart, at) => before.figures[at].update(chart, view)); return; }
  before?.figures.forEach(one => one.remove());
  shown.set(target, {shape, figures: charts.map(chart => figure(target, chart, view))});
}

// A line that is hidden takes along what belongs to it: its raw values before it, its intervals behind it.
function hideParts(self, index, {show}) {
  if (index == null || show == null || !self.series[index].label) return;
  const raw = self.series.at(index - 1), own = raw.faint ? [index - 1] : [];
  for (let at = index + 1; self.series[at] && !self.series[at].label && !self.series[at].faint; at++) own.push(at);
  for (const at of own) self.setSeries(at, {show});
}

// The value of a line nearest to where one points: lines of several runs have no moments in common.
function nearest(self, index, hovered) {
  const values = self.data[index];
  for (let away = 0; away < values.length; away++) for (const at of [hovered - away, hovered + away]) if (values[at] != null) return at;
  return hovered;
}
const UNITS = {
  step: value => String(value),
  time: value => { const s = Math.round(value), pad = n => String(n).padStart(2, "0"); return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)}` : `${Math.floor(s / 3600)}:${pad(Math.floor(s % 3600 / 60))}:${pad(s % 60)}`; },
  tokens: value => value >= 1e6 ? `${+(value / 1e6).toFixed(2)} M` : value >= 1e3 ? `${+(value / 1e3).toFixed(1)} k` : String(Math.round(value)),
};

const tens = [0, 1, 2, 3, 4, 5, 6].flatMap(power => [1, 2, 5].map(one => one * 10 ** power));
const INCREMENTS = {step: {incrs: tens}, time: {incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, ...[1, 2, 3, 6, 12, 24, 48, 96].map(hours => 3600 * hours)]}, tokens: {}};

function plot(place, chart, readout, end, view, big) {
  const {columns, series, bands, bars} = align(chart, view), height = big ? Math.max(260, Math.min(560, innerHeight - 330)) : 150, unit = UNITS[view.x], soft = resolve("probe-soft"), line = resolve("probe-line");
  const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {show: false}, font: "11px system-ui"};
  const options = {
    width: Math.max(200, place.clientWidth), height, legend: {show: big}, series, bands, padding: [6, 8, 0, 0],
    cursor: {points: {size: 6}, y: big, sync: {key: "steps"}, dataIdx: nearest, drag: {x: true, y: big, uni: 24}},
    scales: {x: {time: false}, y: view.log ? {distr: 3} : chart.share && !big ? {range: [0, 1]} : {}},
    axes: [{...axis, size: 24, values: (_, ticks) => ticks.map(unit), ...INCREMENTS[view.x]}, {...axis, size: 44, values: (_, ticks) => ticks.map(tick => tick == null ? "" : chart.share ? `${+(100 * tick).toFixed(1)} %` : Math.abs(tick) >= 1e5 ? tick.toLocaleString("en", {notation: "compact"}) : words(tick, false))}],
    hooks: {draw: [self => drawBars(self, bars)], setSeries: [hideParts], setCursor: [self => {
      const at = self.cursor.idx;
      if (big) return;
      if (at == null) end();
      else read(readout, chart, (_, line) => self.data[places[line]][self.cursor.idxs[places[line]]], `${view.x} ${unit(self.data[0][at])}: `);
    }]},
  };
  const places = series.flatMap((one, index) => index && one.label ? [index] : []), made = new uPlot(options, columns, place);
  const observer = new ResizeObserver(() => place.clientWidth && made.setSize({width: place.clientWidth, height}));
  observer.observe(place);
  // New values leave a zoom as it is.
  function renew(data) {
    const {min, max} = made.scales.x, xs = made.data[0], whole = min == null || (min <= xs[0] && max >= xs.at(-1));  // of one point it shows what is around it
    made.setData(data, whole);
    if (!whole) made.redraw();
  }
  return {whole: () => made.setData(made.data), setData: renew, destroy: () => { observer.disconnect(); made.destroy(); }};
}

export function wake(force = false) {
  for (const data of document.querySelectorAll("script.curves")) {
    const target = document.getElementById(data.dataset.for);
    if (!target || (!force && drawn.get(target) === data.textContent)) continue;
    const folded = target.closest("details");
    if (folded && !folded.open) { folded.ontoggle = () => wake(); continue; }  // one, however often the values change
    drawn.set(target, data.textContent);
    const charts = JSON.parse(data.textContent), section = target.closest("section");
    if (charts.length && section) section.hidden = false;
    draw(target, charts, force);
  }
}
// Any view is an address.
document.addEventListener("input", ({target}) => {
  const form = target.closest("form[data-view]");
  if (!form || target.dataset.reload !== undefined) { target.form?.dataset.view !== undefined && target.form.requestSubmit(); return; }
  history.replaceState(null, "", `?${new URLSearchParams(new FormData(form))}`);
  wake(true);
});
addEventListener("rlf:theme", () => wake(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => wake(true));
