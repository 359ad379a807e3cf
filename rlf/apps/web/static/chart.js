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

const words = (value, share) => value == null ? "–" : share ? `${(100 * value).toFixed(1)} %` : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(+value.toFixed(3));

// Lines of [x, y] and bands of [x, low, high], aligned on one x as uPlot wants them.
function align(chart) {
  const xs = [...new Set(chart.lines.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b);
  const columns = [xs], series = [{label: "step"}], bands = [], bars = [];
  for (const line of chart.lines) {
    const stroke = resolve(`probe-${line.colour % 8}`), at = new Map(line.points), low = new Map(line.band.map(([x, y]) => [x, y])), high = new Map(line.band.map(([x, , y]) => [x, y]));
    columns.push(xs.map(x => at.get(x) ?? null));
    series.push({label: line.name || chart.title, stroke, width: 1.75, dash: DASHES[line.colour % 4], spanGaps: true, points: {show: self => self.data[0].length < 30, size: 4, fill: stroke}, value: (_, value) => words(value, chart.share)});
    if (line.band.length) {
      const edge = {show: true, stroke: "transparent", width: 0, points: {show: false}, spanGaps: true, label: ""};
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

// A chart in its place: what it shows can change, and it is destroyed with its listeners.
function figure(target, first) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption"), last = document.createElement("span"), place = document.createElement("div");
  const [details, fill] = table();
  let chart = first;
  figure.className = "plot";
  caption.textContent = chart.title;
  last.className = "figure";
  caption.append(last);
  place.setAttribute("role", "img");
  figure.append(caption, place, details);
  const note = document.createElement("p");
  note.className = "soft note";
  place.after(note);
  target.append(figure);
  const end = () => chart.lines.map(line => `${line.name ? line.name + " " : ""}${words(line.points.at(-1)[1], chart.share)}`).join("   ");
  const drawn = plot(place, chart, last, end);
  function show(now) {
    chart = now;
    last.textContent = end();
    note.textContent = chart.note || "";
    place.setAttribute("aria-label", `${chart.title}: ${end()}`);
    fill(chart);
  }
  show(chart);
  return {update: now => { show(now); drawn.setData(align(now).columns); }, remove: () => { drawn.destroy(); figure.remove(); }};
}

const shapeOf = charts => JSON.stringify(charts.map(chart => [chart.title, chart.share, chart.lines.map(line => [line.name, line.colour, line.band.length > 1])]));
function draw(target, charts, force) {
  const before = shown.get(target), shape = shapeOf(charts);
  if (before?.shape === shape && !force) { charts.forEach((chart, at) => before.figures[at].update(chart)); return; }
  before?.figures.forEach(one => one.remove());
  shown.set(target, {shape, figures: charts.map(chart => figure(target, chart))});
}

function plot(place, chart, readout, end) {
  const {columns, series, bands, bars} = align(chart), soft = resolve("probe-soft"), line = resolve("probe-line");
  const axis = {stroke: soft, grid: {stroke: line, width: 1}, ticks: {show: false}, font: "11px system-ui"};
  const options = {
    width: Math.max(200, place.clientWidth), height: 150, legend: {show: false}, series, bands, padding: [6, 8, 0, 0],
    cursor: {points: {size: 6}, y: false, sync: {key: "steps"}},
    scales: {x: {time: false}, y: chart.share ? {range: [0, 1]} : {}},
    axes: [{...axis, size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]}, {...axis, size: 44, values: (_, ticks) => ticks.map(tick => chart.share ? `${Math.round(100 * tick)} %` : words(tick, false))}],
    hooks: {draw: [self => drawBars(self, bars)], setCursor: [self => {
      const at = self.cursor.idx;
      readout.textContent = at == null ? end() : `step ${self.data[0][at]}: ` + series.map((one, index) => index && one.label ? `${chart.lines.length > 1 ? one.label + " " : ""}${words(self.data[index][at], chart.share)}` : "").filter(Boolean).join("   ");
    }]},
  };
  const made = new uPlot(options, columns, place);
  const observer = new ResizeObserver(() => place.clientWidth && made.setSize({width: place.clientWidth, height: 150}));
  observer.observe(place);
  return {setData: data => made.setData(data), destroy: () => { observer.disconnect(); made.destroy(); }};
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
addEventListener("rlf:theme", () => wake(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => wake(true));
