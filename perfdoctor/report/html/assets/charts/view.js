// Zoom and pan along one axis, by mouse, wheel, touch, keys and buttons alike.
//
// `view`: `limits` [from, to], `least` (the smallest span), `get()`, `set(from, to)`, `valueAt(clientX)`, `point(value)`
// (what lies there is read out), and `step()` (how far an arrow key goes).

const KEYS = "Drag to zoom; arrow keys read, + and − zoom, 0 shows all.";

function navigable(stage, view) {
  const { box, tools } = stage;
  const [first, last] = view.limits;
  let read = null;

  function show(from, to) {
    const span = Math.min(last - first, Math.max(view.least, to - from));
    const start = Math.min(last - span, Math.max(first, (from + to - span) / 2));
    view.set(start, start + span);
  }

  function zoom(factor, at) {
    const [from, to] = view.get();
    const middle = at ?? (read !== null && read >= from && read <= to ? read : (from + to) / 2);
    show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  function pan(share) {
    const [from, to] = view.get();
    const by = Math.min(last - to, Math.max(first - from, (to - from) * share));
    view.set(from + by, to + by);
  }

  function readOn(direction) {
    const [from, to] = view.get();
    const next = read === null ? (direction > 0 ? from : to) : read + direction * view.step();
    read = Math.min(last, Math.max(first, next));
    if (read < from || read > to) pan(((read - (from + to) / 2) / (to - from)) || 0);
    view.point(read);
  }

  const all = () => show(first, last);
  button(tools, "Zoom in", () => zoom(0.5));
  button(tools, "Zoom out", () => zoom(2));
  button(tools, "Show all", all);

  const keys = {
    ArrowLeft: () => readOn(-1),
    ArrowRight: () => readOn(1),
    PageUp: () => pan(-0.5),
    PageDown: () => pan(0.5),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: all,
    Escape: all,
  };
  box.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  box.addEventListener("dblclick", all);
  // A page that is scrolled past a chart must not stop there: the wheel is the chart's once somebody has chosen it.
  box.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== box) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / box.clientWidth);
      else zoom(event.deltaY > 0 ? 1.25 : 0.8, view.valueAt(event.clientX));
    },
    { passive: false },
  );
  dragged(box, view, show, (value) => view.point((read = value)));
}

// Fingers pan and pinch; a mouse draws the range to zoom to, or pans with shift held.
function dragged(box, view, show, point) {
  const down = new Map();
  const mark = element("div", { class: "chart-selection", hidden: "" });
  box.append(mark);
  let start = null;

  const middle = () => [...down.values()].reduce((sum, x) => sum + x, 0) / down.size;
  const spread = () => Math.max(...down.values()) - Math.min(...down.values());
  const begin = () => {
    start = down.size ? { x: middle(), spread: spread(), range: view.get(), at: view.valueAt(middle()) } : null;
  };

  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, input")) return;
    down.set(event.pointerId, event.clientX);
    if (event.pointerType === "mouse") box.setPointerCapture(event.pointerId);
    begin();
  });
  box.addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId)) {
      if (event.pointerType === "mouse") point(view.valueAt(event.clientX));
      return;
    }
    down.set(event.pointerId, event.clientX);
    if (event.pointerType === "mouse" && !event.shiftKey) {
      const left = box.getBoundingClientRect().left;
      mark.hidden = Math.abs(event.clientX - start.x) < 4;
      mark.style.left = `${Math.min(start.x, event.clientX) - left}px`;
      mark.style.width = `${Math.abs(event.clientX - start.x)}px`;
      return;
    }
    const [from, to] = start.range;
    const scale = down.size > 1 && spread() > 0 ? start.spread / spread() : 1;
    const perPixel = (view.valueAt(start.x + 100) - view.valueAt(start.x)) / 100 / ((view.get()[1] - view.get()[0]) / (to - from));
    const by = (start.x - middle()) * perPixel * scale;
    show(start.at - (start.at - from) * scale + by, start.at + (to - start.at) * scale + by);
  });
  const ended = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (!mark.hidden) {
      const ends = [start.x, event.clientX].map(view.valueAt).sort((a, b) => a - b);
      mark.hidden = true;
      show(...ends);
    } else if (event.type === "pointerup" && start && Math.abs(event.clientX - start.x) < 4) {
      point(view.valueAt(event.clientX));
    }
    begin();
  };
  for (const type of ["pointerup", "pointercancel"]) box.addEventListener(type, ended);
}
