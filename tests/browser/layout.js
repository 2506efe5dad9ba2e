// What is wrong with the layout of a page: texts over one another, cut, or beyond the edge. A list of sentences.
() => {
  const wrong = [];
  const shown = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent.trim();
    const holder = node.parentElement;
    // Frames of a flame graph cut their names themselves.
    if (!text || holder.closest("script, .skip, .d3-flame-graph") || !holder.checkVisibility() || isUnseen(holder)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const scrolls = scroller(holder);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      if (!scrolls && (box.left < -1 || box.right > innerWidth + 1)) wrong.push(`beyond the edge: ${text}`);
      if (!scrolls) shown.push({ text, box, holder });
    }
    const cut = hides(holder);
    if (cut && !scrolls && !cut.closest(".segment")) {
      const [outer, inner] = [cut.getBoundingClientRect(), range.getBoundingClientRect()];
      if (inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1) wrong.push(`cut: ${text}`);
    }
  }
  shown.sort((a, b) => a.box.top - b.box.top);
  shown.forEach((one, i) => {
    for (let j = i + 1; j < shown.length && shown[j].box.top < one.box.bottom - 2; j += 1) {
      const other = shown[j];
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const tall = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      // Line boxes of neighbouring lines touch; letters do not.
      if (wide > 2 && tall > 0.4 * Math.min(one.box.height, other.box.height)) wrong.push(`over one another: ${one.text} | ${other.text}`);
    }
  });
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page scrolls sideways");
  return [...new Set(wrong)];

  function isUnseen(from) {
    for (let at = from; at; at = at.parentElement) if (getComputedStyle(at).clipPath !== "none") return true;
    return false;
  }
  function scroller(from) {
    for (let at = from; at; at = at.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return at;
    }
    return null;
  }
  function hides(from) {
    for (let at = from; at; at = at.parentElement) {
      if (["hidden", "clip"].includes(getComputedStyle(at).overflowX)) return at;
    }
    return null;
  }
}
