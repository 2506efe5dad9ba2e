// One step on its threads and devices: spans in lanes, those within others below them.

const LANE_ROW = 16;
const LANE_HEAD = 18;
const LANE_HUES = ["blue", "green", "cyan", "magenta", "yellow", "red"];

function drawLanes(figure, data) {
  const here = stage(figure, "One step in lanes", KEYS);
  let range = [0, data.us];
  let width = 0;
  let frame = 0;
  const tops = laneTops(data.lanes);

  function draw() {
    frame = 0;
    const context = canvasOf(here.box, width, tops.height);
    context.clearRect(0, 0, width, tops.height);
    paintTimes(context, range, width, tops.height);
    data.lanes.forEach((lane, i) => paintLane(context, data, lane, tops.of[i], range, width, hue(LANE_HUES[i % LANE_HUES.length])));
  }

  function name(value, top) {
    const found = data.lanes.flatMap((lane, i) =>
      lane.spans
        .filter(([start, lasts, , row]) => {
          const y = tops.of[i] + LANE_HEAD + row * LANE_ROW;
          return value >= start && value <= start + lasts && (top === undefined || (top >= y && top < y + LANE_ROW));
        })
        .map((span) => ({ lane, span })),
    );
    const texts = found.slice(0, 6).map(({ lane, span }) => `${lane.name}: ${data.names[span[2]]}, ${duration(span[1] / 1000)}`);
    here.say(texts.length ? `At ${duration(value / 1000)}. ${texts.join("; ")}.` : "");
  }

  navigable(here, {
    limits: [0, data.us],
    least: Math.min(data.us, 1),
    get: () => range,
    set: (from, to) => {
      range = [from, to];
      frame ||= requestAnimationFrame(draw);
    },
    valueAt: (x) => range[0] + ((x - here.box.getBoundingClientRect().left) / Math.max(1, width)) * (range[1] - range[0]),
    step: () => (range[1] - range[0]) / 40,
    point: (value) => name(value),
  });
  here.box.addEventListener("pointermove", (event) => {
    const box = here.box.getBoundingClientRect();
    name(range[0] + ((event.clientX - box.left) / width) * (range[1] - range[0]), event.clientY - box.top);
  });
  redrawn(here.box, (found) => {
    width = found;
    draw();
  });
}

function laneTops(lanes) {
  const of = [];
  let height = 20;
  for (const lane of lanes) {
    of.push(height);
    height += LANE_HEAD + lane.rows * LANE_ROW + 6;
  }
  return { of, height };
}

function paintTimes(context, [from, to], width, height) {
  context.font = font(11);
  context.textBaseline = "top";
  for (const at of ticks(from / 1000, to / 1000, Math.max(2, width / 110))) {
    const x = ((at * 1000 - from) / (to - from)) * width;
    context.fillStyle = colour("line");
    context.fillRect(Math.round(x), 0, 1, height);
    context.fillStyle = colour("muted");
    const text = tickLabel(at);
    context.fillText(text, Math.max(0, Math.min(x + 3, width - context.measureText(text).width)), 2);
  }
}

function paintLane(context, data, lane, top, [from, to], width, fill) {
  const scale = width / (to - from);
  const [ground, ink] = [colour("ground"), colour("on-hue")];
  const fills = data.hues.map((name) => (name ? hue(name) : fill));
  context.font = font(11);
  context.textBaseline = "middle";
  context.fillStyle = ground;
  context.fillRect(0, top + 2, context.measureText(lane.name).width + 6, LANE_HEAD - 4);
  context.fillStyle = colour("text");
  context.fillText(fitted(context, lane.name, width), 0, top + LANE_HEAD / 2);
  for (const [start, lasts, name, row] of lane.spans) {
    if (start > to || start + lasts < from) continue;
    const x = Math.max(0, (start - from) * scale);
    const wide = Math.min(width, (start + lasts - from) * scale) - x;
    const y = top + LANE_HEAD + row * LANE_ROW;
    context.fillStyle = fills[name];
    context.fillRect(x, y, Math.max(1, wide - (wide > 3 ? 1 : 0)), LANE_ROW - 2);
    if (wide < 24) continue;
    context.fillStyle = ink;
    context.fillText(fitted(context, data.names[name], wide - 6), x + 3, y + LANE_ROW / 2 - 1);
  }
}
