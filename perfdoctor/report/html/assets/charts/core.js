// What all charts share: elements, the page's colours, times in words, and drawing anew when size or theme change.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawing(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A part's colour; that of text for what is no part.
function hue(name) {
  return colour(name ? `hue-${name}` : "text");
}

function font(size) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

// As the rest of the report writes times.
function duration(ms) {
  if (ms === 0) return "0 ms";
  const [unit, scale] = Math.abs(ms) >= 1000 ? ["s", 1000] : Math.abs(ms) >= 0.1 ? ["ms", 1] : ["µs", 0.001];
  const value = ms / scale;
  const decimals = Math.min(2, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return `${value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })} ${unit}`;
}

// A figure's parts, below its title: buttons, what is drawn, and a line that says in words what lies under the pointer.
function stage(figure, label, keys) {
  const tools = element("div", { class: "chart-tools" });
  const box = element("div", { class: "chart-box", tabindex: "0", role: "group", "aria-label": `${label}. ${keys}` });
  const reading = element("p", { class: "chart-reading", "aria-live": "polite" });
  figure.querySelector(".drawing").replaceChildren(tools, box, reading);
  reading.textContent = keys;
  return { tools, box, reading, say: (text) => void (reading.textContent = text || keys) };
}

function button(parent, text, act, pressed) {
  const made = element("button", { type: "button" }, text);
  if (pressed !== undefined) made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", () => act(made));
  parent.append(made);
  return made;
}

// A canvas of so many CSS pixels, sharp on every screen; what is drawn on it is described beside it.
function canvasOf(box, width, height) {
  const canvas = box.querySelector("canvas") || box.appendChild(element("canvas", { "aria-hidden": "true" }));
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

// Calls `draw(width)` now, and again when the box gets another width, the theme changes, or the page is printed.
function redrawn(box, draw) {
  let width = 0;
  const again = () => {
    width = Math.floor(box.clientWidth);
    if (width > 0) draw(width);
  };
  new ResizeObserver(() => Math.floor(box.clientWidth) !== width && again()).observe(box);
  document.documentElement.addEventListener("themechange", again);
  matchMedia("print").addEventListener("change", again);
  again();
}

// As much of a text as fits.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let most = Math.floor((text.length * width) / Math.max(1, context.measureText(text).width));
  while (most > 0 && context.measureText(`${text.slice(0, most)}…`).width > width) most -= 1;
  return most > 1 ? `${text.slice(0, most)}…` : "";
}

// Round numbers between two ends, about so many.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}
