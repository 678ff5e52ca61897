"use strict";
// The areas of the timeline: how much of a region of a chip each call site uses, or each owner where owners are
// known, in columns of time. What is not among the largest is one area.
function newAreas(recording) {
  const { born, died, site, sites, bytes, owner, owners, groupOf, texts } = recording;
  const MOST = 12;
  const COLORS = ["#7aa6e8", "#f0b35f", "#8cc98a", "#e58f8f", "#b79be0", "#6fc7c7", "#e3a3cc", "#c9c46a", "#9db4c8", "#d59a74", "#86b7f5", "#a7d6a0"];
  let latest = null; // the latest answer, and for what

  // of returns the areas of a line on one of its chips: with the bytes in each column, the largest area first and
  // the rest last. Rows has a row for each column, in order.
  function of(line, chip, rows) {
    const same = latest && latest.line === line && latest.chip === chip && latest.rows.length === rows.length && latest.rows.every((row, c) => row === rows[c]);
    if (!same) latest = { line, chip, rows, ...add(line, chip, rows) };
    return latest;
  }

  function add(line, chip, rows) {
    const count = rows.length, weight = recording.weights(String(chip)), { region } = line;
    const uses = Array.from(rows, (row) => recording.useAt(line, row));
    let fullest = 0;
    uses.forEach((u, c) => { if (u.bytes > uses[fullest].bytes) fullest = c; });
    const columnOf = new Uint16Array(recording.last + 1).fill(count); // the first column at a row, or after it
    for (let c = 0, row = 0; c < count; c++) for (; row <= rows[c]; row++) columnOf[row] = c;
    const columnAfter = (row) => (row > recording.last ? count : columnOf[row]);

    // An area is a site, or after those an owner: those of the same text are one.
    const wanted = Uint8Array.from(sites, (s, i) => (s.region === region ? weight[i] : 0));
    const areaOf = (i) => (owner[i] ? sites.length + groupOf[owner[i]] : site[i]);
    const sum = new Float64Array(sites.length + owners.length), atPeak = new Float64Array(sum.length), siteOf = new Int32Array(sum.length).fill(-1);
    function rank(area, size, from, to) {
      sum[area] += size * (to - from);
      if (from <= fullest && fullest < to) atPeak[area] += size;
    }
    for (let i = 0; i < born.length; i++) {
      const from = wanted[site[i]] ? columnOf[born[i]] : count, to = columnAfter(died[i]);
      if (from >= to) continue;
      siteOf[areaOf(i)] = site[i];
      rank(areaOf(i), bytes[i], from, to);
    }
    uses.forEach((u, c) => { if (u.static) { siteOf[u.site] = u.site; rank(u.site, u.static, c, c + 1); } });
    const total = sum.reduce((a, b) => a + b, 0) || 1, peak = atPeak.reduce((a, b) => a + b, 0) || 1;
    const score = (area) => Math.max(sum[area] / total, atPeak[area] / peak);
    const used = [];
    for (let area = 0; area < sum.length; area++) if (siteOf[area] >= 0) used.push(area);
    const chosen = used.sort((a, b) => score(b) - score(a)).slice(0, used.length > MOST + 1 ? MOST : used.length).sort((a, b) => sum[b] - sum[a]);

    const number = new Int32Array(sum.length).fill(chosen.length), free = [...COLORS.keys()];
    const series = chosen.map((area, n) => {
      number[area] = n;
      const s = sites[siteOf[area]], held = area >= sites.length ? texts[area - sites.length] : "", isProgram = area < sites.length && s.kind === "circular buffers";
      const name = held || (isProgram ? `${s.kind} of ${s.name}` : s.name) || "(no call stack)";
      const color = free.splice(hash(name) % free.length, 1)[0] ?? 0; // mostly the same for the same name
      return { name, site: s, color: COLORS[color], more: [held && s.name, s.callers && "← " + s.callers].filter(Boolean), values: new Float64Array(count + 1) };
    });
    if (used.length > chosen.length) {
      const others = used.length - chosen.length;
      series.push({ name: `${others.toLocaleString("en-US")} other call sites`, site: null, color: "", more: [], values: new Float64Array(count + 1) });
    }
    for (let i = 0; i < born.length; i++) {
      const from = wanted[site[i]] ? columnOf[born[i]] : count, to = columnAfter(died[i]);
      if (from >= to) continue;
      const { values } = series[number[areaOf(i)]];
      values[from] += bytes[i];
      values[to] -= bytes[i];
    }
    for (const one of series) {
      for (let c = 1; c < count; c++) one.values[c] += one.values[c - 1];
      one.values = one.values.subarray(0, count);
    }
    uses.forEach((u, c) => { if (u.static) series[number[u.site]].values[c] += u.static; });
    let most = 0;
    uses.forEach((u, c) => { most = Math.max(most, u.bytes, series.reduce((a, one) => a + one.values[c], 0)); });
    return { series, most };
  }

  function hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return h >>> 8;
  }

  return { of };
}
