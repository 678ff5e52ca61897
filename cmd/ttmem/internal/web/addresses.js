"use strict";
// The address map: what occupies a region of a chip at a moment. The addresses that are in use are
// drawn in several rows, one after the other, from left to right. Each pixel shows one block, so
// that a million blocks are drawn as fast as a few.
function newAddressMap(recording, { canvas, tip, about }) {
  const { sites, site, perBank, address, born, time } = recording;
  const { formatBytes } = flameText;
  const ROWS = 12, ROW = 20, GAP = 4;
  const paint = canvas.getContext("2d");
  let blocks = [], space = { start: 0, end: 1 }, hovered = -1, width = 0, shown = null;
  let buffers = null, statics = null; // the block of each pixel, or -1
  const hues = sites.map((s) => {
    let h = s.node;
    for (let i = 0; i < s.name.length; i++) h = (Math.imul(h, 31) + s.name.charCodeAt(i)) >>> 0;
    return `hsl(${185 + (h % 100)} ${45 + ((h >>> 8) % 30)}% ${52 + ((h >>> 16) % 18)}%)`;
  });
  const isStatic = (i) => sites[site[i]].region === "CB";
  const hex = (n) => "0x" + n.toString(16);

  // show draws a region of a chip after a row.
  function show(row, region, chip) {
    shown = { row, region, chip };
    hovered = -1;
    blocks = recording.liveIn(row, region, chip).filter((i) => perBank[i] > 0);
    let start = Infinity, end = 0, used = 0;
    for (const i of blocks) {
      start = Math.min(start, address[i]);
      end = Math.max(end, address[i] + perBank[i]);
      if (!isStatic(i)) used += perBank[i];
    }
    const whole = recording.spaceOf(region, chip) || { bytes_per_bank: 0 };
    // most of DRAM is free: only the part in use is drawn
    if (whole.bytes_per_bank && region !== "DRAM") space = { start: whole.start, end: whole.start + whole.bytes_per_bank };
    else space = start < end ? { start, end } : { start: 0, end: 1 };
    about.textContent = `${region} of ${chipsText([Number(chip)])} at +${time[row].toFixed(6)} s: ${blocks.length.toLocaleString("en-US")} blocks, ${formatBytes(used)} per bank`
      + (whole.bytes_per_bank ? ` of ${formatBytes(whole.bytes_per_bank)}` : "") + `; addresses ${hex(space.start)} to ${hex(space.end)}`;
    lay();
  }

  // lay gives each pixel its block.
  function lay() {
    const ratio = window.devicePixelRatio || 1;
    width = Math.max(100, canvas.parentElement.clientWidth);
    canvas.style.width = width + "px"; canvas.style.height = ROWS * (ROW + GAP) + "px";
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(ROWS * (ROW + GAP) * ratio);
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pixels = ROWS * width, scale = pixels / (space.end - space.start);
    buffers = new Int32Array(pixels).fill(-1);
    statics = new Int32Array(pixels).fill(-1);
    for (const i of blocks) {
      const from = Math.max(0, Math.floor((address[i] - space.start) * scale)), to = Math.round((address[i] + perBank[i] - space.start) * scale);
      (isStatic(i) ? statics : buffers).fill(i, from, Math.min(pixels, Math.max(from + 1, to)));
    }
    draw();
  }

  function draw() {
    const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue("--" + name).trim();
    paint.clearRect(0, 0, width, ROWS * (ROW + GAP));
    paint.fillStyle = color("panel");
    for (let row = 0; row < ROWS; row++) paint.fillRect(0, row * (ROW + GAP), width, ROW);
    drawBlocks(buffers, 0, color("match"));
    drawBlocks(statics, ROW / 2, color("match"), color("native")); // in the lower half: they share addresses
  }

  function drawBlocks(blockOf, inset, match, fixed) {
    for (let at = 0; at < blockOf.length; ) {
      const i = blockOf[at], row = Math.floor(at / width), begin = at;
      while (at < (row + 1) * width && blockOf[at] === i) at++;
      if (i < 0) continue;
      paint.fillStyle = i === hovered ? match : fixed || hues[site[i]];
      paint.fillRect(begin - row * width, row * (ROW + GAP) + inset, at - begin > 3 ? at - begin - 1 : at - begin, ROW - inset);
    }
  }

  function blockAt(x, y) {
    const row = Math.floor(y / (ROW + GAP)), pixel = row * width + Math.floor(x);
    if (!buffers || x < 0 || x >= width || row < 0 || row >= ROWS) return -1;
    const isLower = y - row * (ROW + GAP) >= ROW / 2;
    return isLower && statics[pixel] >= 0 ? statics[pixel] : buffers[pixel];
  }

  canvas.addEventListener("mousemove", (e) => {
    const r = canvas.getBoundingClientRect(), i = blockAt(e.clientX - r.left, e.clientY - r.top);
    if (i !== hovered) { hovered = i; draw(); }
    if (i < 0) { tip.hidden = true; return; }
    const s = sites[site[i]], holder = recording.owners[recording.owner[i]];
    flameLayout.showTip(tip, [s.name, s.callers && "← " + s.callers, `${hex(address[i])} to ${hex(address[i] + perBank[i])}, ${formatBytes(perBank[i])} in each of ${recording.banks[i]} ${isStatic(i) ? "cores" : "banks"}`,
      `${isStatic(i) ? "program" : "buffer"} ${recording.id[i]} of ${recording.model.processName(s.pid)}, since +${time[born[i]].toFixed(6)} s`, holder.path && `held by ${holder.path}${holder.tensor ? " · " + holder.tensor : ""}`], e.clientX, e.clientY);
  });
  canvas.addEventListener("mouseleave", () => { hovered = -1; tip.hidden = true; if (shown) draw(); });
  new ResizeObserver(() => { if (shown && canvas.parentElement.clientWidth !== width && canvas.parentElement.clientWidth > 0) lay(); }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (shown) draw(); });

  return {
    show,
    // blocks is for tests: what is drawn, in order of address.
    blocks: () => blocks.map((i) => ({ address: address[i], bytes: perBank[i], name: sites[site[i]].name, id: recording.id[i] })).sort((a, b) => a.address - b.address),
  };
}
