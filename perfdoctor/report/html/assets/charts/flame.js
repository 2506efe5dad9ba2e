// A flame graph of d3-flame-graph: `{name, value, users, children}`, values in
// milliseconds per step. Keys go from frame to frame.

const FLAME_KEYS = "Click or Enter zooms to a frame; arrow keys go from frame to frame, Escape shows all.";
const FLAME_HUES = ["blue", "cyan", "green", "magenta"];

function drawFlame(figure, data) {
  const here = stage(figure, "Flame graph", FLAME_KEYS);
  let graph = null;
  let current = null;

  // Of the data: the library makes a frame above the one that is zoomed to smaller.
  const say = ({ data: { name, value } }) =>
    here.say(`${name}: ${duration(value)} per step, ${((100 * value) / data.root.value).toFixed(1)} %.`);
  const field = element("input", { type: "search", placeholder: "Find a function", "aria-label": "Find a function in the flame graph" });
  field.addEventListener("input", () => (field.value ? graph.search(field.value) : graph.clear()));
  button(here.tools, "Show all", () => graph.resetZoom());
  here.tools.append(field);

  function build(width) {
    current = null;
    graph = flamegraph.default();
    graph
      .width(width)
      .cellHeight(20)
      .minFrameSize(2)
      .transitionDuration(0)
      .tooltip(false)
      .title("")
      .inverted(true)
      .sort(true)
      .setColorMapper(flameColour)
      .setSearchMatch((frame, text) => frame.data.name.toLowerCase().includes(text.toLowerCase()))
      .label((frame) => frame.data.name)
      .onHover(say)
      .onClick(say);
    here.box.replaceChildren();
    d3.select(here.box).datum(structuredClone(data.root)).call(graph);
    here.box.querySelector("svg").setAttribute("aria-hidden", "true");
  }

  function choose(frame) {
    if (!frame) return;
    current = frame;
    say(frame);
    d3.select(here.box).selectAll("g.frame").classed("is-read", (other) => other === frame);
  }

  here.box.addEventListener("keydown", (event) => {
    const root = d3.select(here.box).datum();
    const at = current || root;
    const beside = at.parent ? at.parent.children : [at];
    const act = {
      ArrowDown: () => choose(at.children && at.children[0]),
      ArrowUp: () => choose(at.parent),
      ArrowLeft: () => choose(beside[beside.indexOf(at) - 1]),
      ArrowRight: () => choose(beside[beside.indexOf(at) + 1]),
      Enter: () => graph.zoomTo(at),
      Escape: () => graph.resetZoom(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  redrawn(here.box, build);
}

// Frames of one name have one colour; what is not the user's has none.
function flameColour(frame) {
  if (frame.highlight) return hue("yellow");
  if (!frame.data.users) return hue("dim");
  let sum = 0;
  for (const letter of frame.data.name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return hue(FLAME_HUES[sum % FLAME_HUES.length]);
}
