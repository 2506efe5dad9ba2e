// Steps over time: lines of uPlot, and below them a strip for each kind of thing that happened.

const STRIP = 26;
const SHADED = ["warm_up", "phase", "window", "profiler", "trial"];
const STRIP_HUES = {
  warm_up: "dim", phase: "cyan", window: "dim", profiler: "yellow", trial: "green", epoch: "blue", evaluation: "cyan", gc: "yellow",
  checkpoint: "magenta", compile: "red",
};

function drawSteps(figure, data) {
  const here = stage(figure, "Length of steps over time", KEYS);
  const [first, last] = [data.first[0], Math.max(data.last, data.first[0] + 1)];
  const shown = data.lines.map(() => true);
  let logarithmic = data.log;
  let plot = null;
  let range = [first, last];

  // A logarithmic axis has no place for nothing.
  const values = () => data.lines.map((line) => (logarithmic ? line.ms.map((ms) => (ms > 0 ? ms : null)) : line.ms));

  function build(width) {
    if (plot) plot.destroy();
    plot = new uPlot(stepOptions(data, width, { shown, logarithmic, range }), [data.first, ...values()], here.box);
    plot.root.setAttribute("aria-hidden", "true");
  }

  const choices = element("div", { class: "chart-choices" });
  data.lines.forEach((line, i) => {
    const choice = button(choices, line.label, () => {
      shown[i] = !shown[i];
      choice.setAttribute("aria-pressed", String(shown[i]));
      plot.setSeries(i + 1, { show: shown[i] });
    }, true);
    const sample = element("span", { class: "chart-sample", "aria-hidden": "true" });
    sample.style.borderColor = `var(--${line.hue ? `hue-${line.hue}` : "text"})`;
    if (isSecond(data.lines, i)) sample.style.borderTopStyle = "dashed";
    choice.prepend(sample);
  });
  here.box.before(choices);
  navigable(here, {
    limits: [first, last],
    least: Math.min(5, last - first),
    get: () => range,
    set: (from, to) => {
      range = [from, to];
      plot.setScale("x", { min: from, max: to });
    },
    valueAt: (x) => plot.posToVal(x - plot.over.getBoundingClientRect().left, "x"),
    step: () => (data.first.length > 1 ? data.first[1] - data.first[0] : 1),
    point: (value) => {
      const i = uPlotIndex(data.first, value);
      plot.setCursor({ left: plot.valToPos(data.first[i], "x"), top: 0 });
      here.say(stepReading(data, i));
    },
  });
  button(here.tools, "Logarithmic", (made) => {
    logarithmic = !logarithmic;
    made.setAttribute("aria-pressed", String(logarithmic));
    build(here.box.clientWidth);
  }, logarithmic);
  redrawn(here.box, build);
}

// Two lines of one colour differ by their dashes.
function isSecond(lines, i) {
  return lines.slice(0, i).some((line) => line.hue === lines[i].hue);
}

function uPlotIndex(places, value) {
  let low = 0;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (places[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low < places.length - 1 && value - places[low] > places[low + 1] - value ? low + 1 : low;
}

function stepReading(data, i) {
  const from = data.first[i];
  const to = (data.first[i + 1] ?? data.last + 1) - 1;
  const times = data.lines.map((line) => (line.label === "step" ? duration(line.ms[i]) : `${line.label} ${duration(line.ms[i])}`));
  const held = data.marks.filter((mark) => mark.spans.some(([start, end]) => start <= to && end >= from));
  const name = to > from ? `Steps ${from} to ${to}` : `Step ${from}`;
  return `${name}: ${[...times, ...held.map((mark) => mark.label)].join("; ")}.`;
}

function stepOptions(data, width, { shown, logarithmic, range }) {
  const axis = { stroke: colour("muted"), font: font(12), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  return {
    width,
    height: 240 + STRIP * data.marks.length,
    padding: [8, 12, STRIP * data.marks.length, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
    scales: {
      x: { time: false, min: range[0], max: range[1] },
      y: logarithmic ? { distr: 3 } : { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] },
    },
    axes: [
      { ...axis, size: 34, space: 70 },
      { ...axis, size: 64, splits: logarithmic ? logarithmicSplits : undefined, values: (_, splits) => splits.map((at) => (at === null ? "" : tickLabel(at))) },
    ],
    series: [
      {},
      ...data.lines.map((line, i) => ({
        show: shown[i],
        label: line.label,
        stroke: hue(line.hue),
        width: line.hue ? 1 : 1.5,
        dash: isSecond(data.lines, i) ? [4, 3] : undefined,
        points: { show: false },
      })),
    ],
    hooks: { drawClear: [(plot) => shade(plot, data.marks)], draw: [(plot) => strips(plot, data.marks)] },
  };
}

// Powers of ten, and 2 and 5 times those where there are few.
function logarithmicSplits(_plot, _axis, low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const between = last - first > 3 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = first; power <= last; power += 1) found.push(...between.map((factor) => factor * 10 ** power));
  return found.filter((at) => at >= low && at <= high);
}

function tickLabel(ms) {
  return ms === 0 ? "0" : duration(ms).replace(/\.0+(?= )/, "");
}

// Left and right of the steps of a span, in the canvas's pixels, at least so wide; null where they are out of sight.
function across(plot, [start, end], least) {
  const { left, width } = plot.bbox;
  const from = Math.max(left, plot.valToPos(start - 0.5, "x", true));
  const to = Math.min(left + width, Math.max(plot.valToPos(end + 0.5, "x", true), from + least));
  return to < left || from > left + width ? null : [from, to];
}

function shade(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour("raised");
  for (const mark of marks.filter((mark) => SHADED.includes(mark.kind))) {
    for (const span of mark.spans) {
      const place = across(plot, span, 1);
      if (place) ctx.fillRect(place[0], bbox.top, place[1] - place[0], bbox.height);
    }
  }
  ctx.restore();
}

function strips(plot, marks) {
  const { ctx, bbox } = plot;
  const scale = window.devicePixelRatio || 1;
  ctx.save();
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  marks.forEach((mark, i) => {
    const top = bbox.top + bbox.height + (34 + i * STRIP) * scale;
    const more = mark.left_out ? `, and ${mark.left_out.toLocaleString("en")} more` : "";
    ctx.font = font(11 * scale);
    ctx.fillStyle = colour("muted");
    ctx.fillText(fitted(ctx, mark.label + more, bbox.width), bbox.left, top);
    ctx.fillStyle = colour("raised");
    ctx.fillRect(bbox.left, top + 14 * scale, bbox.width, 7 * scale);
    ctx.fillStyle = hue(STRIP_HUES[mark.kind]);
    for (const span of mark.spans) {
      const place = across(plot, span, 2 * scale);
      if (place) ctx.fillRect(place[0], top + 14 * scale, place[1] - place[0], 7 * scale);
    }
  });
  ctx.restore();
}
