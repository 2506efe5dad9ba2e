// A gate's pairs of launches: a point for each pair, the interval of all of them, and the slowdown that is tolerated.

function drawPairs(figure, data) {
  const here = stage(figure, "Change of each pair of launches", "Arrow keys read the pairs.");
  const all = data.metrics.flatMap((metric) => metric.pairs.map((change, i) => ({ metric, change, i })));
  let at = -1;
  const read = (i) => {
    at = Math.min(all.length - 1, Math.max(0, i));
    const { metric, change, i: pair } = all[at];
    here.say(`${metric.label}, pair ${pair + 1} of ${metric.pairs.length}: ${signed(change)}.`);
    here.box.querySelectorAll("circle").forEach((dot, place) => dot.classList.toggle("is-read", place === at));
  };
  here.box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    read(at + by);
  });
  here.box.addEventListener("pointermove", (event) => event.target.dataset.pair && read(Number(event.target.dataset.pair)));
  redrawn(here.box, (width) => here.box.replaceChildren(pairsPicture(data, width)));
}

function signed(percent) {
  return `${percent < 0 ? "−" : "+"}${Math.abs(percent).toFixed(1)} %`;
}

function pairsPicture(data, width) {
  const ends = data.metrics.flatMap((metric) => [...metric.pairs, metric.low ?? 0, metric.high ?? 0]);
  const reach = 1.08 * Math.max(data.tolerance ?? 0, ...ends.map(Math.abs), 1);
  const place = (percent) => ((percent + reach) / (2 * reach)) * width;
  const [tall, foot] = [58, 40];
  const height = tall * data.metrics.length;
  const picture = drawing("svg", { width, height: height + foot, "aria-hidden": "true" });
  picture.append(drawing("line", { class: "chart-axis is-one", x1: place(0), x2: place(0), y1: 0, y2: height }));
  if (data.tolerance) {
    const x = place(data.tolerance);
    picture.append(drawing("line", { class: "chart-tolerance", x1: x, x2: x, y1: 0, y2: height }));
  }
  let dot = 0;
  data.metrics.forEach((metric, row) => {
    const middle = row * tall + 38;
    picture.append(drawing("text", { class: "chart-label", x: 0, y: row * tall + 14 }, metric.label));
    if (metric.low !== null && metric.high !== null) {
      const [from, to] = [place(metric.low), place(metric.high)];
      picture.append(drawing("rect", { class: "chart-interval", x: from, y: middle - 9, width: Math.max(2, to - from), height: 18 }));
    }
    metric.pairs.forEach((change, i) => {
      const y = middle + ((i % 3) - 1) * 5;
      picture.append(drawing("circle", { class: "chart-dot", "data-pair": dot++, cx: place(change), cy: y, r: 4 }));
    });
  });
  const last = Math.floor(reach);
  for (const at of ticks(-last, last, Math.max(2, width / 90))) {
    const x = place(at);
    const anchor = x < 30 ? "start" : x > width - 30 ? "end" : "middle";
    picture.append(drawing("text", { class: "chart-label", x, y: height + 16, "text-anchor": anchor }, at ? signed(at).replace(".0", "") : "0"));
  }
  picture.append(
    drawing("text", { class: "chart-label", x: 0, y: height + 34 }, "← faster"),
    drawing("text", { class: "chart-label", x: width, y: height + 34, "text-anchor": "end" }, "slower →"),
  );
  return picture;
}
