"use strict";
// The address map: what occupies a region of a chip at a moment. The addresses that are in use are
// drawn in several rows, one after the other, from left to right.
function newAddressMap(recording, { canvas, tip, about }) {
  const { sites, site, perBank, address, born, time } = recording;
  const { formatBytes } = flameText;
  const ROWS = 12, ROW = 20, GAP = 4;
  const paint = canvas.getContext("2d");
  let blocks = [], space = { start: 0, end: 1 }, hovered = -1, width = 0, colors = {}, shown = null;

  const at = (offset) => { // of an address: its row, and the pixel in it
    const part = ((offset - space.start) / (space.end - space.start)) * ROWS, row = Math.min(ROWS - 1, Math.floor(part));
    return { row, x: (part - row) * width };
  };
  const addressAt = (x, y) => {
    const row = Math.max(0, Math.min(ROWS - 1, Math.floor(y / (ROW + GAP))));
    return space.start + ((row + Math.max(0, Math.min(1, x / width))) / ROWS) * (space.end - space.start);
  };
  const colorOf = (name) => { // of a call site: neighbours differ
    let h = 0;
    for (let i = 0; i < name.length; i++) h = (Math.imul(h, 31) + name.charCodeAt(i)) >>> 0;
    return `hsl(${185 + (h % 100)} ${45 + ((h >>> 8) % 30)}% ${52 + ((h >>> 16) % 18)}%)`;
  };
  const isStatic = (i) => sites[site[i]].region === "CB";

  // show draws a region of a chip after a row.
  function show(row, region, chip) {
    shown = { row, region, chip };
    const whole = recording.spaceOf(region, chip);
    blocks = recording.liveIn(row, region, chip).filter((i) => perBank[i] > 0 && region !== "CB" && region !== "KERNEL")
      .sort((a, b) => isStatic(b) - isStatic(a) || address[a] - address[b]);
    space = { start: 0, end: 0 };
    if (blocks.length) {
      space = { start: Infinity, end: 0 };
      for (const i of blocks) {
        space.start = Math.min(space.start, address[i]);
        space.end = Math.max(space.end, address[i] + perBank[i]);
      }
    }
    const used = perBankSum();
    if (whole && whole.bytes_per_bank && region !== "DRAM") space = { start: whole.start, end: whole.start + whole.bytes_per_bank };
    if (!(space.end > space.start)) space.end = space.start + 1;
    about.textContent = `${region} of ${chipsText([Number(chip)])} at +${time[row].toFixed(6)} s: ${blocks.length.toLocaleString("en-US")} blocks, ${formatBytes(used)} per bank`
      + (whole && whole.bytes_per_bank ? ` of ${formatBytes(whole.bytes_per_bank)}` : "") + `; addresses ${hex(space.start)} to ${hex(space.end)}`;
    draw();
  }
  const hex = (n) => "0x" + n.toString(16);
  const perBankSum = () => blocks.reduce((sum, i) => sum + (isStatic(i) ? 0 : perBank[i]), 0);

  function draw() {
    const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    for (const name of ["panel", "line", "python", "native", "other", "match", "text"]) colors[name] = style.getPropertyValue("--" + name).trim();
    width = Math.max(100, canvas.parentElement.clientWidth);
    const height = ROWS * (ROW + GAP);
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, height);
    paint.fillStyle = colors.panel;
    for (let row = 0; row < ROWS; row++) paint.fillRect(0, row * (ROW + GAP), width, ROW);
    for (const i of blocks) drawBlock(i);
  }

  function drawBlock(i) {
    const s = sites[site[i]], from = at(address[i]), to = at(address[i] + perBank[i]);
    paint.fillStyle = i === hovered ? colors.match : isStatic(i) ? colors.native : colorOf(s.node + s.name);
    for (let row = from.row; row <= to.row; row++) {
      const x = row === from.row ? from.x : 0, end = row === to.row ? to.x : width;
      const w = end - x, inset = isStatic(i) ? ROW / 2 : 0; // circular buffers below: they share addresses
      if (w > 0 || from.row === to.row) paint.fillRect(x, row * (ROW + GAP) + inset, Math.max(1, w > 3 ? w - 1 : w), ROW - inset);
    }
  }

  function blockAt(x, y) {
    const where = addressAt(x, y), near = (space.end - space.start) / ROWS / width; // a pixel
    const inside = blocks.filter((i) => address[i] <= where && where < address[i] + Math.max(perBank[i], near));
    return inside.length ? inside.at(-1) : -1;
  }

  canvas.addEventListener("mousemove", (e) => {
    const r = canvas.getBoundingClientRect(), i = blockAt(e.clientX - r.left, e.clientY - r.top);
    if (i !== hovered) { hovered = i; draw(); }
    if (i < 0) { tip.hidden = true; return; }
    const s = sites[site[i]];
    showTip(tip, [s.name, s.callers && "← " + s.callers, `${hex(address[i])} to ${hex(address[i] + perBank[i])}, ${formatBytes(perBank[i])} in each of ${recording.banks[i]} ${isStatic(i) ? "cores" : "banks"}`,
      `${isStatic(i) ? "program" : "buffer"} ${recording.id[i]} of ${recording.model.processName(s.pid)}, since +${time[born[i]].toFixed(6)} s`], e.clientX, e.clientY);
  });
  canvas.addEventListener("mouseleave", () => { hovered = -1; tip.hidden = true; draw(); });
  new ResizeObserver(() => { if (shown && canvas.parentElement.clientWidth !== width && canvas.parentElement.clientWidth > 0) draw(); }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (shown) draw(); });

  // blocks is for tests: what is drawn.
  return { show, blocks: () => blocks.map((i) => ({ address: address[i], bytes: perBank[i], name: sites[site[i]].name, id: recording.id[i] })) };
}
