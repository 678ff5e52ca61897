"use strict";
// Where the boxes of a flame graph are, and how they and tooltips look.
const flameLayout = (() => {
  const NARROW = 0.5; // pixels

  // lay places what is wide enough to be seen. It returns the boxes by depth, from left
  // to right: {id, x, w, more}.
  function lay(tree, zoomed, width) {
    const rows = [];
    const put = (depth, box) => (rows[depth] ||= []).push(box);
    for (let i = tree.parent[zoomed]; i >= 0; i = tree.parent[i]) put(tree.depth[i], { id: i, x: 0, w: width, more: 0 });
    const todo = [{ id: zoomed, x: 0, w: width, more: 0 }];
    while (todo.length) {
      const box = todo.pop();
      put(tree.depth[box.id], box);
      const end = tree.first[box.id + 1], scale = box.w / tree.value[box.id];
      let x = box.x;
      const next = [];
      for (let at = tree.first[box.id]; at < end; at++) {
        const id = tree.children[at], w = tree.value[id] * scale;
        if (w < NARROW) {
          let rest = 0;
          for (let j = at; j < end && rest * scale < NARROW; j++) rest += tree.value[tree.children[j]];
          if (rest * scale >= NARROW) {
            for (rest = 0, at; at < end; at++) rest += tree.value[tree.children[at]];
            next.push({ id: box.id, x, w: rest * scale, more: rest });
          }
          break;
        }
        next.push({ id, x, w, more: 0 });
        x += w;
      }
      // from left to right, so that a row's boxes are in order
      for (const b of next.reverse()) b.more ? put(tree.depth[b.id] + 1, b) : todo.push(b);
    }
    for (const row of rows) row.sort((a, b) => a.x - b.x);
    return rows;
  }

  // shade makes neighbours differ: a colour that is a little lighter or darker,
  // the same for the same name.
  function shade(color, name) {
    let h = 2166136261;
    for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
    const by = 1 + ((((h >>> 8) % 1000) / 1000) - 0.5) * 0.2;
    const part = (at) => Math.min(255, Math.round(parseInt(color.slice(at, at + 2), 16) * by));
    return `rgb(${part(1)} ${part(3)} ${part(5)})`;
  }

  // fit is the first of the texts that has room, or the last one cut short.
  // Control characters and line ends of hostile names are nothing to see.
  function fit(paint, texts, width) {
    let s = "";
    for (s of texts) {
      s = s.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ").slice(0, 1000);
      if (s.length < width && paint.measureText(s).width <= width) return s;
    }
    const chars = Array.from(s);
    let low = 0, high = Math.min(chars.length, Math.ceil(width));
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (paint.measureText(chars.slice(0, middle).join("") + "…").width <= width) low = middle;
      else high = middle - 1;
    }
    return low > 1 ? chars.slice(0, low).join("") + "…" : "";
  }

  // showTip shows lines of text next to the mouse; the first one is a title.
  function showTip(tip, texts, x, y) {
    tip.replaceChildren(...texts.filter(Boolean).map((text, i) => {
      const e = document.createElement(i ? "div" : "b");
      e.textContent = text.length > 2000 ? text.slice(0, 2000) + "…" : text;
      return e;
    }));
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - size.width - 6)) + "px";
    tip.style.top = Math.max(4, y + 18 + size.height > innerHeight ? y - size.height - 10 : y + 18) + "px";
  }

  return { NARROW, lay, shade, fit, showTip };
})();
