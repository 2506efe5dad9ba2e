// Ranks by parts of the step: a cell for each, darker where it takes longer, on one scale for all of them. Where a row
// of cells would be finer than two pixels, the ranks go on in a further band below.

function drawRanks(figure, data) {
  const here = stage(figure, "Time of each rank in each part of the step", "Arrow keys go from cell to cell.");
  const most = Math.max(...data.ms.flat());
  const late = data.ranks.indexOf(data.late);
  let layout = null;
  let at = [Math.max(0, late), 0];

  function draw(width) {
    layout = rankLayout(data, width);
    const context = canvasOf(here.box, width, layout.height);
    context.clearRect(0, 0, width, layout.height);
    paintRanks(context, data, layout, most, late);
  }

  function read(rank, part) {
    at = [Math.min(data.ranks.length - 1, Math.max(0, rank)), Math.min(data.parts.length - 1, Math.max(0, part))];
    const isLate = at[0] === late ? ", late" : "";
    here.say(`Rank ${data.ranks[at[0]]}${isLate}, ${data.parts[at[1]]}: ${duration(data.ms[at[1]][at[0]])}.`);
    draw(Math.floor(here.box.clientWidth));
    outline(canvasContext(here.box), cell(layout, ...at), colour("accent"));
  }

  here.box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    read(at[0] + by[0], at[1] + by[1]);
  });
  const pointed = (event) => {
    const box = here.box.querySelector("canvas").getBoundingClientRect();
    const found = cellAt(layout, event.clientX - box.left, event.clientY - box.top);
    if (found && found[0] < data.ranks.length && (found[0] !== at[0] || found[1] !== at[1])) read(...found);
  };
  here.box.addEventListener("pointermove", pointed);
  here.box.addEventListener("pointerdown", pointed);
  here.box.before(rankLegend(data, most));
  redrawn(here.box, draw);
}

function canvasContext(box) {
  return box.querySelector("canvas").getContext("2d");
}

function rankLegend(data, most) {
  const ramp = element("span", { class: "chart-ramp", "aria-hidden": "true" });
  const scale = element("p", {}, "0 ms ", ramp, ` ${duration(most)} per step`);
  return element("div", { class: "chart-legend" }, scale, element("p", {}, `Rows from the top: ${data.parts.join(", ")}.`));
}

// Cells as wide as there is room for, from 2 to 96 pixels; bands of so many ranks.
function rankLayout(data, width) {
  const wide = Math.max(2, Math.min(96, Math.floor(width / data.ranks.length)));
  const perBand = Math.max(1, Math.floor(width / wide));
  const bands = Math.ceil(data.ranks.length / perBand);
  const tall = bands === 1 ? 24 : bands < 6 ? 12 : 6;
  const band = tall * data.parts.length + 18;
  return { wide, perBand, tall, band, parts: data.parts.length, height: bands * band + 4 };
}

function cell({ wide, perBand, tall, band }, rank, part) {
  const [column, row] = [rank % perBand, Math.floor(rank / perBand)];
  return [column * wide, row * band + 16 + part * tall, wide, tall];
}

function cellAt({ wide, perBand, tall, band, parts }, x, y) {
  const row = Math.floor(y / band);
  const part = Math.floor((y - row * band - 16) / tall);
  const column = Math.floor(x / wide);
  return part < 0 || part >= parts || column < 0 || column >= perBand ? null : [row * perBand + column, part];
}

function paintRanks(context, data, layout, most, late) {
  const [ground, ink] = [colour("ground"), colour("hue-blue")].map(channels);
  const shades = Array.from({ length: 65 }, (_, i) => mixed(ground, ink, 0.06 + (0.94 * i) / 64));
  const gap = layout.wide > 6 ? 1 : 0;
  data.ms.forEach((row, part) => {
    row.forEach((ms, rank) => {
      const [x, y, wide, tall] = cell(layout, rank, part);
      context.fillStyle = shades[Math.round((64 * ms) / most)];
      context.fillRect(x, y, wide - gap, tall - gap);
    });
  });
  context.font = font(11);
  context.textBaseline = "top";
  context.fillStyle = colour("muted");
  for (let rank = 0; rank < data.ranks.length; rank += layout.perBand) {
    const end = Math.min(data.ranks.length, rank + layout.perBand) - 1;
    context.fillText(`ranks ${data.ranks[rank]} to ${data.ranks[end]}`, 0, cell(layout, rank, 0)[1] - 14);
  }
  if (late >= 0) markLate(context, data, layout, late);
}

// A frame around the late rank's column, and its name above.
function markLate(context, data, layout, late) {
  const [x, y, wide] = cell(layout, late, 0);
  outline(context, [x, y, wide, layout.tall * layout.parts], colour("error"));
  const name = `▾ rank ${data.ranks[late]} is late`;
  const right = layout.perBand * layout.wide;
  context.font = font(11);
  const space = context.measureText(name).width;
  const start = Math.max(0, Math.min(x - 2, right - space));
  context.fillStyle = colour("ground");
  // Where the two names would meet, that of the band gives way.
  const from = start < 130 ? 0 : start - 2;
  context.fillRect(from, y - 16, start + space + 4 - from, 14);
  context.fillStyle = colour("error");
  context.fillText(name, start, y - 14);
}

function outline(context, [x, y, wide, tall], ink) {
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, wide + 1, tall + 1);
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mixed(one, other, share) {
  return `rgb(${one.map((value, i) => Math.round(value + (other[i] - value) * share)).join(" ")})`;
}
