"use strict";
// A flame graph on a canvas: draws a tree of a model, and lets the user zoom and move in it.
// The elements are the canvas, what scrolls, what is as high as the graph, the tooltip, what is
// shown without data, and the line about a box. zoomed is called after the user zoomed.
function flameView(model, { canvas, view, spacer, tip, empty, detail }, { formatValue, isFlame, zoomed: onZoom }) {
  const { NATIVE, PYTHON, OTHER, frames } = model;
  const { formatBytes, formatCount, formatPercent } = flameText;
  const ROW = 20, GAP = 1, { NARROW } = flameLayout; // pixels

  let tree = null;  // see model.build
  let marks = null; // see model.mark; null: nothing is searched
  const frame = (id) => model.frame(tree, id);
  const text = (id) => (tree.node[id] ? frame(id).text : tree.title);

  // --- drawing ------------------------------------------------------------
  const paint = canvas.getContext("2d");
  const FONT = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  let zoomed = 0, hovered = -1, focused = -1;
  let rows = []; // by depth: the boxes from left to right, {id, x, w, more}
  let colors;

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue("--" + name).trim();
    colors = { [PYTHON]: get("python"), [NATIVE]: get("native"), [OTHER]: get("other"), match: get("match"), page: get("page"), text: get("text"), accent: get("accent"), ink: "#10151d" };
    for (const f of frames) f.color = null;
  }

  function colorOf(id) {
    if (marks && marks.found[id]) return colors.match;
    const f = frame(id);
    if (!f) return colors[OTHER];
    return (f.color ||= flameLayout.shade(colors[f.kind], f.kind === NATIVE ? f.module + f.name.split("::")[0] : f.name));
  }

  const height = () => Math.max(rows.length * ROW, view.clientHeight);
  const rowTop = (depth) => (isFlame() ? height() - (depth + 1) * ROW : depth * ROW);
  const depthAt = (y) => Math.floor((isFlame() ? height() - y : y) / ROW);

  let drawn = { width: 0, key: null };
  let pending = 0;
  const redraw = () => { pending ||= requestAnimationFrame(() => { pending = 0; draw(); }); };

  function draw() {
    const width = Math.max(50, view.clientWidth), seen = Math.max(ROW, view.clientHeight);
    const ratio = window.devicePixelRatio || 1;
    if (drawn.width !== width || drawn.tree !== tree || drawn.zoomed !== zoomed) {
      rows = flameLayout.lay(tree, zoomed, width);
      drawn = { width, tree, zoomed };
    }
    canvas.style.width = width + "px";
    canvas.style.height = seen + "px";
    const w = Math.round(width * ratio), h = Math.round(seen * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    spacer.style.height = Math.max(0, height() - seen) + "px";
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.fillStyle = colors.page;
    paint.fillRect(0, 0, width, seen);
    paint.font = FONT;
    paint.textBaseline = "middle";
    const isEmpty = !(tree.value[0] > 0);
    empty.hidden = !isEmpty;
    if (isEmpty) return;
    for (let depth = 0; depth < rows.length; depth++) {
      const y = rowTop(depth) - view.scrollTop;
      if (y + ROW < 0 || y > seen) continue;
      for (const box of rows[depth]) drawBox(box, y, depth < tree.depth[zoomed]);
    }
  }

  function drawBox(box, y, above) {
    const gap = box.w > 3 ? GAP : 0, w = Math.max(box.w - gap, NARROW), h = ROW - GAP;
    if (box.more) {
      paint.globalAlpha = 0.35;
      paint.fillStyle = colors[OTHER];
      paint.fillRect(box.x, y, w, h);
      paint.globalAlpha = 1;
      return;
    }
    paint.globalAlpha = above ? 0.55 : marks && !marks.found[box.id] && box.id ? 0.6 : 1;
    paint.fillStyle = colorOf(box.id);
    paint.fillRect(box.x, y, w, h);
    paint.globalAlpha = 1;
    if (box.id === hovered || box.id === focused) {
      paint.strokeStyle = colors.text;
      paint.lineWidth = 1.5;
      paint.strokeRect(box.x + 0.75, y + 0.75, Math.max(w - 1.5, 0.5), h - 1.5);
    }
    if (w > 24) {
      paint.fillStyle = colors.ink;
      if (above && matchMedia("(prefers-color-scheme: dark)").matches) paint.fillStyle = colors.text;
      paint.fillText(flameLayout.fit(paint, labels(box), w - 8), box.x + 4, y + h / 2 + 0.5);
    }
  }

  // labels are what a box may say, the best first.
  function labels(box) {
    const f = frame(box.id), name = text(box.id), list = [];
    if (box.id === 0 || box.w > 420) list.push(`${name}  ${formatValue(tree.value[box.id])}`);
    list.push(name);
    if (f) list.push(...f.names);
    return list;
  }

  // --- what a box is ------------------------------------------------------
  function describe(box) {
    if (box.more) {
      return { name: "frames too narrow to show", place: "zoom in to see them", figures: `${formatValue(box.more)}, ${formatPercent(box.more, tree.value[0])} of all` };
    }
    const id = box.id, f = frame(id), lines = [];
    if (f) {
      const line = model.line(tree, id);
      if (f.file) lines.push(f.kind === PYTHON ? f.place : f.file + (line > 0 ? ":" + line : line < 0 ? " (several lines)" : ""));
      lines.push(["native", "Python", ""][f.kind] + (f.inlined ? ", inlined" : "") + (f.module ? " in " + f.module : ""));
    }
    let figures = `${formatBytes(tree.bytes[id])} in ${formatCount(tree.count[id])}, ${formatPercent(tree.value[id], tree.value[0])} of all`;
    if (id > 0 && tree.parent[id] > 0) figures += `, ${formatPercent(tree.value[id], tree.value[tree.parent[id]])} of ${tree.inverted ? "its callee" : "its caller"}`;
    return { name: f ? f.name : tree.title, place: lines.filter(Boolean).join(" · "), figures };
  }

  function describeIn(box) {
    const d = describe(box);
    detail.textContent = [d.name, d.place, d.figures].filter(Boolean).join(" · ");
  }

  function showTip(box, x, y) {
    const d = describe(box);
    flameLayout.showTip(tip, [d.name, d.place, d.figures], x, y);
    tip.lastElementChild.className = "figures";
  }

  function boxAt(e) {
    const at = view.getBoundingClientRect();
    const x = e.clientX - at.left, row = rows[depthAt(e.clientY - at.top + view.scrollTop)];
    if (!row) return null;
    let low = 0, high = row.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (row[middle].x <= x) low = middle;
      else high = middle - 1;
    }
    const box = row[low];
    return box && x >= box.x && x < box.x + box.w ? box : null;
  }

  function zoom(id) {
    zoomed = focused = id;
    scrollTo0();
    redraw();
    onZoom();
  }

  function scrollTo0() {
    requestAnimationFrame(() => { view.scrollTop = isFlame() ? view.scrollHeight : 0; redraw(); });
  }

  canvas.addEventListener("mousemove", (e) => {
    const box = boxAt(e), id = box && !box.more ? box.id : -1;
    if (id !== hovered) { hovered = id; redraw(); }
    if (box && tree.value[0] > 0) showTip(box, e.clientX, e.clientY);
    else tip.hidden = true;
    canvas.style.cursor = box ? "pointer" : "default";
  });
  canvas.addEventListener("mouseleave", () => { hovered = -1; tip.hidden = true; redraw(); });
  canvas.addEventListener("click", (e) => {
    const box = boxAt(e);
    if (!box) return;
    describeIn(box);
    zoom(box.id);
  });
  view.addEventListener("scroll", () => { tip.hidden = true; redraw(); });

  // step finds the box next to the focused one.
  function step(key) {
    if (focused < 0) return zoomed;
    const deeper = isFlame() ? "ArrowUp" : "ArrowDown";
    const row = (rows[tree.depth[focused]] || []).filter((b) => !b.more), at = row.findIndex((b) => b.id === focused);
    switch (key) {
      case "ArrowLeft": return at > 0 ? row[at - 1].id : focused;
      case "ArrowRight": return at >= 0 && at + 1 < row.length ? row[at + 1].id : focused;
      case deeper: {
        // what is above the zoomed frame is drawn without its other children
        const below = (rows[tree.depth[focused] + 1] || []).find((b) => !b.more && tree.parent[b.id] === focused);
        return below ? below.id : focused;
      }
    }
    return Math.max(0, tree.parent[focused]);
  }

  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key.startsWith("Arrow")) {
      e.preventDefault();
      e.stopPropagation();
      focused = step(e.key);
      describeIn({ id: focused });
      const y = rowTop(tree.depth[focused]);
      if (y < view.scrollTop) view.scrollTop = y;
      else if (y + ROW > view.scrollTop + view.clientHeight) view.scrollTop = y + ROW - view.clientHeight;
      redraw();
    } else if (e.key === "Enter" && focused >= 0) {
      zoom(focused);
    }
  });
  new ResizeObserver(() => { if (tree) redraw(); }).observe(view);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); if (tree) redraw(); });
  readColors();

  return {
    redraw, scrollTo0,
    zoomed: () => zoomed,
    // show draws a tree and what is found in it; zoom then zooms without telling.
    show(newTree, newMarks, zoom = 0) {
      tree = newTree;
      marks = newMarks;
      zoomed = zoom;
      hovered = focused = -1;
      drawn = {};
      redraw();
    },
    mark(newMarks) { marks = newMarks; redraw(); },
    reset() { zoom(0); focused = -1; },
    // boxes are those that are drawn, in pixels of the page: for tests and for the console.
    boxes() {
      const at = view.getBoundingClientRect();
      return rows.flatMap((row, depth) => row.map((b) => ({
        text: b.more ? "" : text(b.id), x: at.left + b.x, y: at.top + rowTop(depth) - view.scrollTop, width: b.w, height: ROW, depth,
        bytes: b.more ? 0 : tree.bytes[b.id], count: b.more ? 0 : tree.count[b.id], found: Boolean(marks && !b.more && marks.found[b.id]),
      })));
    },
    nodes: () => tree.parent.length,
  };
}
