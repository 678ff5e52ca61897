"use strict";
// The timeline: what the selected region of a chip consists of, over time, and below that a lane for each region
// of chips that are alike. A full lane is the capacity; the axis above has the units. The user selects a
// moment or a range with the mouse or with keys. No peak is lost: a column of pixels of a lane shows the
// minimum and the maximum of its time, and the areas are those of its maximum.
function newTimeline(recording, { canvas, overlay, scroll, tip }, { selected, picked, pickedArea }) {
  const { time, lines, stops, last } = recording;
  const { formatBytes, formatPercent } = flameText;
  const AXIS = 34, AREAS = lines.length ? 140 : 0, LABEL = innerWidth < 600 ? 96 : 150, LANE = lines.length > 8 ? 28 : 36, GAP = 6, FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  const paint = canvas.getContext("2d"), over = overlay.getContext("2d");
  const end = Math.max(time[last] * 1.01, recording.head.live ? 1 : 1e-9); // so that the last event can be seen
  let range = { begin: 0, end }; // in seconds: what is drawn
  let selection = { from: 0, to: 0, at: 0, region: "", chip: "" };
  let width = 0, rowOfPixel = [], colors, hoverX = -1, drag = null;

  const top = (lane) => AXIS + AREAS + GAP + lane * (LANE + GAP);
  const height = () => top(lines.length) + 2;
  const xOf = (seconds) => LABEL + ((seconds - range.begin) / (range.end - range.begin)) * (width - LABEL);
  const secondsAt = (x) => range.begin + (Math.max(0, x - LABEL) / (width - LABEL)) * (range.end - range.begin);
  const rowAtX = (x) => recording.rowAt(Math.min(range.end, secondsAt(x)));
  const laneAt = (y) => Math.floor((y - top(0)) / (LANE + GAP));
  const isSelected = (line) => line.region === ({ CB: "L1", KERNEL: "DRAM" }[selection.region] || selection.region) && (selection.chip === "" || line.devices.includes(Number(selection.chip)));
  const most = lines.map((l) => l.pyramid.range(0, l.bytes.length).high);

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    colors = Object.fromEntries(["page", "panel", "line", "text", "soft", "accent", "match", "python", "native", "other"].map((n) => [n, style.getPropertyValue("--" + n).trim()]));
    colors.ink = "#10151d";
  }

  function size() {
    width = Math.max(LABEL + 60, scroll.clientWidth);
    const ratio = window.devicePixelRatio || 1;
    for (const c of [canvas, overlay]) {
      c.style.width = width + "px"; c.style.height = height() + "px";
      c.width = Math.round(width * ratio); c.height = Math.round(height() * ratio);
      c.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  // columnsOf returns the minimum and maximum of each pixel of a lane: of all memory, or of the
  // circular buffers.
  function columnsOf(line, { values, pyramid } = { values: line.bytes, pyramid: line.pyramid }) {
    const list = [], until = (x) => recording.firstAbove(line.row, rowOfPixel[x]); // the changes up to there
    for (let x = LABEL, i = until(x), next; x < width; x++, i = next) {
      next = until(x + 1);
      list.push(column(values, pyramid, i, next));
    }
    return list;
  }
  function column(values, pyramid, i, next) {
    const now = i > 0 ? values[i - 1] : 0, { low, high } = pyramid.range(i, next);
    return { low: Math.min(now, low), high: Math.max(now, high) };
  }

  function draw() {
    rowOfPixel = Array.from({ length: width + 1 }, (_, x) => rowAtX(x));
    paint.fillStyle = colors.page;
    paint.fillRect(0, 0, width, height());
    paint.font = FONT;
    paint.textBaseline = "middle";
    drawAxis();
    drawAreas();
    lines.forEach((line, n) => { // those that are seen
      if (top(n) + LANE >= scroll.scrollTop && top(n) <= scroll.scrollTop + scroll.clientHeight) drawLane(line, n);
    });
    drawOverlay();
  }

  function drawAxis() {
    const span = range.end - range.begin, rough = span / Math.max(2, (width - LABEL) / 110);
    const unit = 10 ** Math.floor(Math.log10(rough)), step = unit * [1, 2, 5, 10].find((n) => n * unit >= rough);
    paint.fillStyle = colors.soft;
    paint.strokeStyle = colors.line;
    paint.lineWidth = 1;
    for (let n = Math.ceil(range.begin / step); n * step <= range.end; n++) {
      const x = Math.round(xOf(n * step)) + 0.5;
      paint.beginPath(); paint.moveTo(x, AXIS - 8); paint.lineTo(x, height()); paint.stroke();
      const text = secondsText(n * step, step);
      if (x + 4 + paint.measureText(text).width < width) paint.fillText(text, x + 3, AXIS - 6);
    }
    let free = LABEL;
    for (const stop of stops) { // one for each few pixels
      if (stop.kind === "peak" || time[stop.row] < range.begin || time[stop.row] > range.end) continue;
      const x = xOf(time[stop.row]);
      if (x < free) continue;
      paint.fillStyle = stop.kind === "mark" ? colors.accent : colors.match;
      paint.fillRect(x - 1, 2, 2, AXIS - 16);
      const text = flameLayout.fit(paint, [{ failure: "failed", leak: "leak" }[stop.kind] || stop.text.slice(5)], 120);
      paint.fillText(text, x + 4, 9);
      free = x + 8 + paint.measureText(text).width;
    }
  }

  // --- the areas ----------------------------------------------------------
  const areas = newAreas(recording), MOST_COLUMNS = 1000;
  let shown = null; // the areas that are drawn: with their line, the columns and the scale

  // rowsOf returns a row for each column of the areas: that in which the line is highest in its time.
  function rowsOf(line, count) {
    const rows = new Uint32Array(count), pixel = (c) => LABEL + Math.floor((c * (width - LABEL)) / count);
    for (let c = 0; c < count; c++) {
      const begin = rowOfPixel[pixel(c)], end = recording.firstAbove(line.row, rowOfPixel[pixel(c + 1)]);
      rows[c] = begin;
      for (let i = recording.firstAbove(line.row, begin), most = recording.useAt(line, begin).bytes; i < end; i++) {
        if (line.bytes[i] > most) { most = line.bytes[i]; rows[c] = line.row[i]; }
      }
    }
    return rows;
  }

  function drawAreas() {
    const line = lines.find(isSelected);
    shown = null;
    paint.fillStyle = colors.panel;
    paint.fillRect(LABEL, AXIS, width - LABEL, AREAS);
    if (!line) return;
    const count = Math.min(width - LABEL, MOST_COLUMNS), chip = selection.chip === "" ? line.devices[0] : Number(selection.chip);
    const { series, rows, most: used } = areas.of(line, chip, rowsOf(line, count));
    const full = used > 0 ? used * 1.08 : 1, step = (width - LABEL) / count, bottom = AXIS + AREAS;
    shown = { line, series, rows, full, step };
    const yOf = (bytes) => bottom - (bytes / full) * AREAS, xOfColumn = (c) => Math.round(LABEL + c * step);
    const names = [];
    let below = new Float64Array(count);
    for (const one of series) {
      const above = one.values.map((v, c) => v + below[c]);
      paint.fillStyle = one.color || colors.other;
      for (let c = 0; c < count; ) { // columns of the same height are one
        let until = c + 1;
        while (until < count && above[until] === above[c] && below[until] === below[c]) until++;
        if (one.values[c] > 0) paint.fillRect(xOfColumn(c), yOf(above[c]), xOfColumn(until) - xOfColumn(c), yOf(below[c]) - yOf(above[c]));
        c = until;
      }
      names.push([one, below, above, step, yOf]);
      below = above;
    }
    const unit = 2 ** Math.ceil(Math.log2(full / 3));
    paint.fillStyle = colors.soft;
    paint.textAlign = "right";
    for (let bytes = used > 0 ? unit : full; bytes < full; bytes += unit) {
      paint.globalAlpha = 0.35;
      paint.fillRect(LABEL, Math.round(yOf(bytes)), width - LABEL, 1);
      paint.globalAlpha = 1;
      if (yOf(bytes) > AXIS + 34) paint.fillText(formatBytes(bytes).replace(".0 ", " "), LABEL - 6, yOf(bytes));
    }
    paint.fillText("0", LABEL - 6, bottom - 5);
    paint.textAlign = "left";
    paint.fillStyle = colors.ink;
    for (const name of names) drawName(...name);
    if (line.capacity && line.capacity <= full) {
      paint.fillStyle = colors.match;
      paint.fillRect(LABEL, yOf(line.capacity), width - LABEL, 1);
    }
    paint.fillStyle = colors.accent;
    paint.fillText(flameLayout.fit(paint, [`${nameOf(line)} · chip ${chip}`, nameOf(line)], LABEL - 8), 2, AXIS + 8);
    paint.fillStyle = colors.soft;
    paint.fillText(flameLayout.fit(paint, [recording.owners.length > 1 ? "by owner or call site" : "by call site"], LABEL - 8), 2, AXIS + 22);
  }

  // drawName writes the name of an area where it is highest, if there is room.
  function drawName({ name, more, values }, below, above, step, yOf) {
    let best = 0;
    for (let c = 1; c < values.length; c++) if (values[c] > values[best]) best = c;
    let from = best, to = best, y0 = yOf(above[best]), y1 = yOf(below[best]); // in these columns the area has these heights
    const fits = (c) => c >= 0 && c < values.length && Math.min(y1, yOf(below[c])) - Math.max(y0, yOf(above[c])) >= 13;
    for (let grown = fits(best); grown && (to - from) * step < 400; ) {
      grown = false;
      for (const c of [from - 1, to + 1]) {
        if (!fits(c)) continue;
        y0 = Math.max(y0, yOf(above[c])); y1 = Math.min(y1, yOf(below[c]));
        if (c < from) from = c; else to = c;
        grown = true;
      }
    }
    const room = (to - from) * step - 8;
    if (room > 60) paint.fillText(flameLayout.fit(paint, [[name, ...more].join(" "), name], room), LABEL + from * step + 4, (y0 + y1) / 2);
  }

  // areaAt returns the area at a place, and its row; null if there is none.
  function areaAt(x, y) {
    if (!shown || x < LABEL || y < AXIS || y >= AXIS + AREAS) return null;
    const c = Math.min(shown.rows.length - 1, Math.floor((x - LABEL) / shown.step)), bytes = ((AXIS + AREAS - y) / AREAS) * shown.full;
    let sum = 0;
    for (const one of shown.series) {
      if (bytes >= sum && bytes < sum + one.values[c]) return { ...one, row: shown.rows[c], bytes: one.values[c] };
      sum += one.values[c];
    }
    return null;
  }

  function drawLane(line, n) {
    const y = top(n), scale = line.capacity || most[n] || 1; // a full lane
    paint.fillStyle = colors.panel;
    paint.fillRect(LABEL, y, width - LABEL, LANE);
    const heightOf = (bytes) => (Math.min(bytes, scale) / scale) * LANE;
    paint.fillStyle = isSelected(line) ? colors.accent : colors.python;
    columnsOf(line).forEach(({ low, high }, i) => {
      const h = heightOf(high);
      paint.globalAlpha = 0.55;
      paint.fillRect(LABEL + i, y + LANE - heightOf(low), 1, heightOf(low));
      paint.globalAlpha = 1;
      if (high > 0) paint.fillRect(LABEL + i, y + LANE - h, 1, Math.max(1.5, h - heightOf(low)));
    });
    if (line.static) {
      paint.fillStyle = colors.native;
      columnsOf(line, { values: line.static, pyramid: line.staticPyramid }).forEach(({ high }, i) => {
        if (high > 0) paint.fillRect(LABEL + i, y + LANE - Math.max(1, heightOf(high)), 1, Math.max(1, heightOf(high)));
      });
    }
    paint.fillStyle = colors.soft;
    paint.globalAlpha = 0.5;
    paint.fillRect(LABEL, y, width - LABEL, 1);
    paint.globalAlpha = 1;
    const title = `${nameOf(line)} · ${chipsText(line.devices)}`, share = line.capacity ? `, ${formatPercent(most[n], line.capacity)}` : "";
    if (LANE > 30) paint.fillText(flameLayout.fit(paint, [`peak ${formatBytes(most[n])}${share}`], LABEL - 8), 2, y + LANE / 2 + 8);
    paint.fillStyle = isSelected(line) ? colors.accent : colors.text;
    paint.fillText(flameLayout.fit(paint, [title], LABEL - 8), 2, y + LANE / 2 - (LANE > 30 ? 7 : 0));
  }

  function drawOverlay() {
    over.clearRect(0, 0, width, height());
    const from = xOf(time[selection.from]), to = xOf(time[selection.to]), at = xOf(time[selection.at]);
    if (selection.from < selection.to) {
      over.fillStyle = colors.accent;
      over.globalAlpha = 0.18;
      over.fillRect(Math.max(LABEL, from), AXIS - 10, Math.min(width, to) - Math.max(LABEL, from), height());
      over.globalAlpha = 1;
      for (const x of [from, to]) if (x >= LABEL && x <= width) over.fillRect(x - 0.5, AXIS - 10, 1, height());
    }
    if (at >= LABEL && at <= width) {
      over.fillStyle = colors.text;
      over.fillRect(at - 0.75, AXIS - 14, 1.5, height());
      over.beginPath(); over.moveTo(at - 5, AXIS - 15); over.lineTo(at + 5, AXIS - 15); over.lineTo(at, AXIS - 8); over.fill();
    }
    if (hoverX >= LABEL) {
      over.fillStyle = colors.soft;
      over.fillRect(hoverX, AXIS - 10, 1, height());
    }
  }

  let pending = 0;
  const redraw = () => { pending ||= requestAnimationFrame(() => { pending = 0; draw(); }); };
  const nameOf = (line) => (line.region === "L1" ? "L1 per core" : line.region);

  // --- what the user does -------------------------------------------------
  const place = (e) => { const at = overlay.getBoundingClientRect(); return { x: e.clientX - at.left, y: e.clientY - at.top }; };

  overlay.addEventListener("mousedown", (e) => {
    if (e.button !== 0) return;
    const { x, y } = place(e), line = lines[laneAt(y)];
    if (line) picked(line);
    if (x < LABEL) return;
    drag = { x, row: e.shiftKey ? selection.from : rowAtX(x), moved: e.shiftKey };
    if (e.shiftKey) dragTo(x);
  });
  window.addEventListener("mousemove", (e) => {
    if (!drag) return;
    const { x } = place(e);
    if (Math.abs(x - drag.x) > 3) drag.moved = true;
    if (drag.moved) dragTo(x);
  });
  window.addEventListener("mouseup", (e) => {
    if (!drag) return;
    const { x, y } = place(e), row = drag.row, moved = drag.moved, area = areaAt(x, y);
    drag = null;
    if (!moved && area) pickedArea(area);
    else if (!moved) selected(row, row, true);
    else selected(Math.min(row, rowAtX(x)), Math.max(row, rowAtX(x)), true);
  });
  function dragTo(x) {
    const row = rowAtX(Math.max(LABEL, Math.min(width, x)));
    selected(Math.min(drag.row, row), Math.max(drag.row, row), false);
  }

  overlay.addEventListener("mousemove", (e) => {
    const { x, y } = place(e), line = lines[laneAt(y)];
    hoverX = x;
    drawOverlay();
    if (x < LABEL || drag) { tip.hidden = true; return; }
    const area = areaAt(x, y);
    if (area) {
      const use = recording.useAt(shown.line, area.row).bytes;
      flameLayout.showTip(tip, [area.name, ...area.more, `${formatBytes(area.bytes)}, ${formatPercent(area.bytes, use)} of ${formatBytes(use)}, at +${secondsText(time[area.row], (range.end - range.begin) / width)}`], e.clientX, e.clientY);
      return;
    }
    const row = rowAtX(x), parts = [`+${secondsText(secondsAt(x), (range.end - range.begin) / width)}`];
    if (line) {
      const { low, high } = columnAt(line, x);
      const part = recording.useAt(line, row).static;
      parts.push(`${nameOf(line)}, ${chipsText(line.devices)}: ${low === high ? formatBytes(high) : `${formatBytes(low)} to ${formatBytes(high)}`}${line.capacity ? " of " + formatBytes(line.capacity) : ""}${part ? `, of which ${formatBytes(part)} are of the program that ran` : ""}`);
    }
    parts.push(...stops.filter((s) => Math.abs(xOf(time[s.row]) - x) < 3 && (!line || !s.region || s.region === line.region)).slice(0, 4).map((s) => s.text));
    flameLayout.showTip(tip, parts, e.clientX, e.clientY);
  });
  overlay.addEventListener("mouseleave", () => { hoverX = -1; tip.hidden = true; drawOverlay(); });
  const columnAt = (line, x) => column(line.bytes, line.pyramid, recording.firstAbove(line.row, rowAtX(x)), recording.firstAbove(line.row, rowAtX(x + 1)));

  // zoom makes the drawn range longer or shorter around a time.
  function zoom(factor, around) {
    const span = Math.min(end, Math.max(1e-7, (range.end - range.begin) * factor));
    const share = (around - range.begin) / (range.end - range.begin);
    show(around - share * span, around - share * span + span);
  }
  function show(begin, until) {
    const span = Math.min(end, until - begin);
    begin = Math.max(0, Math.min(end - span, begin));
    range = { begin, end: begin + span };
    redraw();
  }
  overlay.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.shiftKey) return; // the page scrolls
    e.preventDefault();
    zoom((e.deltaY || e.deltaX) > 0 ? 1.25 : 0.8, secondsAt(place(e).x));
  }, { passive: false });
  overlay.addEventListener("dblclick", () => show(0, end));

  overlay.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const to = { ArrowLeft: selection.at - 1, ArrowRight: selection.at + 1, PageUp: rowAtX(xOf(time[selection.at]) - 40), PageDown: rowAtX(xOf(time[selection.at]) + 40), Home: 0, End: last }[e.key];
    if (to !== undefined) {
      const at = Math.max(0, Math.min(last, to));
      if (!e.shiftKey) selected(at, at, true);
      else if (selection.at === selection.from && selection.from < selection.to) selected(Math.min(at, selection.to), Math.max(at, selection.to), true, at);
      else selected(Math.min(at, selection.from), Math.max(at, selection.from), true, at);
    } else if (e.key === "+" || e.key === "=") zoom(0.5, time[selection.at]);
    else if (e.key === "-") zoom(2, time[selection.at]);
    else if (e.key === "0") show(0, end);
    else if (e.key === "z") show(time[selection.from] - 1e-9, Math.max(time[selection.to], time[selection.from] + 1e-6));
    else if (e.key === "ArrowUp" || e.key === "ArrowDown") {
      const at = lines.findIndex(isSelected) + (e.key === "ArrowUp" ? -1 : 1);
      if (lines[at]) picked(lines[at]);
    } else return;
    e.preventDefault();
  });

  scroll.addEventListener("scroll", redraw);
  new ResizeObserver(() => { if (scroll.clientWidth !== width) { size(); draw(); } }).observe(scroll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); draw(); });
  readColors();
  size();

  return {
    // zoomed returns the drawn range; null if it is everything. zoomTo draws such a range, which stays
    // with the newest events if it had them.
    zoomed: () => (range.end - range.begin < end ? { ...range, newest: range.end >= time[last] } : null),
    zoomTo: ({ begin, end: until, newest }) => (newest ? show(end - (until - begin), end) : show(begin, until)),
    // select draws a selection.
    select(s) {
      const other = s.region !== selection.region || s.chip !== selection.chip;
      selection = { ...s };
      if (other) redraw();
      else drawOverlay();
    },
    // The rest is for tests and for the console.
    xOf: (row) => overlay.getBoundingClientRect().left + xOf(time[row]),
    areas: () => (shown ? { names: shown.series.map((one) => one.name), columns: shown.rows.length } : null),
    sums: () => ({ areas: Array.from(shown.rows, (_, c) => shown.series.reduce((sum, one) => sum + one.values[c], 0)), use: Array.from(shown.rows, (row) => recording.useAt(shown.line, row).bytes) }),
    areaY: (bytes) => overlay.getBoundingClientRect().top + AXIS + AREAS - (bytes / shown.full) * AREAS,
    laneY: (n) => overlay.getBoundingClientRect().top + top(n) + LANE / 2,
    columnsOf,
    draw,
  };
}

// secondsText writes a time with as many digits as steps of that size need.
function secondsText(seconds, step) {
  return seconds.toFixed(Math.max(0, Math.min(9, Math.ceil(-Math.log10(step) + 0.01)))) + " s";
}
