// How steady steps are spread: a histogram of the step, and for each part a strip with its quantiles.

function drawDistributions(figure, data) {
  const here = stage(figure, "Lengths of steady steps", "Arrow keys read the bars.");
  const bars = data.counts.length;
  let at = -1;

  function read(i) {
    at = Math.min(bars - 1, Math.max(0, i));
    const from = data.from + at * data.width;
    here.say(`${duration(from)} to ${duration(from + data.width)}: ${data.counts[at].toLocaleString("en")} steps.`);
    here.box.querySelectorAll("rect[data-bar]").forEach((bar, place) => bar.classList.toggle("is-read", place === at));
  }

  here.box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    read(at + by);
  });
  here.box.addEventListener("pointermove", (event) => event.target.dataset.bar && read(Number(event.target.dataset.bar)));
  redrawn(here.box, (width) => here.box.replaceChildren(histogram(data, width), quantileStrips(data, width)));
}

function histogram(data, width) {
  const [height, foot] = [130, 24];
  const picture = drawing("svg", { width, height: height + foot, "aria-hidden": "true" });
  const most = Math.max(...data.counts);
  const each = width / data.counts.length;
  data.counts.forEach((count, i) => {
    const tall = count ? Math.max(1, (count / most) * (height - 4)) : 0;
    picture.append(
      drawing("rect", { class: "chart-bar", x: i * each, y: height - tall, width: Math.max(1, each - 1), height: tall }),
      drawing("rect", { class: "chart-catch", "data-bar": i, x: i * each, y: 0, width: each, height }),
    );
  });
  picture.append(...scaleBelow(data.from, data.to, width, height));
  return picture;
}

// An axis of times along the whole width, its labels inside of it.
function scaleBelow(low, high, width, top) {
  const made = [drawing("line", { class: "chart-axis", x1: 0, x2: width, y1: top + 0.5, y2: top + 0.5 })];
  for (const at of ticks(low, high, Math.max(2, width / 110))) {
    const x = ((at - low) / (high - low)) * width;
    const anchor = x < 24 ? "start" : x > width - 24 ? "end" : "middle";
    made.push(
      drawing("line", { class: "chart-axis", x1: x, x2: x, y1: top, y2: top + 4 }),
      drawing("text", { class: "chart-label", x: Math.min(width, x), y: top + 18, "text-anchor": anchor }, tickLabel(at)),
    );
  }
  return made;
}

// From the 5th to the 95th percentile a line, from the 25th to the 75th a box, the median a mark in it.
function quantileStrips(data, width) {
  const tall = 40;
  const high = Math.max(...data.strips.map((strip) => strip.quantiles[4])) * 1.02 || 1;
  const picture = drawing("svg", { width, height: tall * data.strips.length + 24, "aria-hidden": "true" });
  const place = (ms) => (ms / high) * width;
  data.strips.forEach((strip, i) => {
    const [low, quarter, median, threeQuarters, top] = strip.quantiles.map(place);
    const middle = tall * i + 29;
    const paint = `fill: var(--${strip.hue ? `hue-${strip.hue}` : "text"})`;
    picture.append(
      drawing("text", { class: "chart-label", x: 0, y: middle - 11 }, strip.label),
      drawing("text", { class: "chart-label", x: width, y: middle - 11, "text-anchor": "end" }, duration(strip.quantiles[2])),
      drawing("rect", { style: paint, x: low, y: middle - 1, width: Math.max(1, top - low), height: 2 }),
      drawing("rect", { style: `${paint}; opacity: 0.55`, x: quarter, y: middle - 6, width: Math.max(1, threeQuarters - quarter), height: 12 }),
      drawing("rect", { style: paint, x: median - 1, y: middle - 8, width: 3, height: 16 }),
    );
  });
  picture.append(...scaleBelow(0, high, width, tall * data.strips.length));
  return picture;
}
