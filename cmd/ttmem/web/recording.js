"use strict";
// A recording: its rows are the beginning and then each event, its lives are the allocations.
// Amounts are added up from the lives for any moment or range of rows.
function newRecording({ head, columns }) {
  const { born, site, perBank, banks, address, id, owner } = columns;
  const rows = columns.time.length, last = rows - 1, lives = born.length;
  const NEVER = 0xffffffff;
  const FIELDS = { node: 0, group: 1, set: 2, name: 3, op: 4, component: 5, kind: 6, callers: 7, class: 8 }; // see siteNode in write.go

  // In seconds since the beginning.
  const time = columns.time;
  for (let i = 0; i < rows; i++) time[i] /= 1e9;

  const died = columns.lived;
  const bytes = new Float64Array(lives);
  for (let i = 0; i < lives; i++) {
    died[i] = died[i] ? born[i] + died[i] : NEVER;
    bytes[i] = perBank[i] * banks[i];
  }

  // firstAbove returns the first index whose value is above x.
  function firstAbove(values, x) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > x) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  const rowAt = (seconds) => Math.max(0, firstAbove(time, seconds) - 1);

  // --- call sites -----------------------------------------------------------
  const sites = head.sites.map((s, i) => {
    const [pid, , region] = head.groups[s[FIELDS.group]];
    const text = (field) => head.texts[s[FIELDS[field]]];
    return {
      i, pid, region, node: s[FIELDS.node], chips: head.sets[s[FIELDS.set]], name: text("name"), op: text("op"),
      component: text("component"), kind: text("kind"), callers: text("callers"), class: text("class"),
    };
  });
  const regionOf = sites.map((s) => s.region);

  // --- owners ---------------------------------------------------------------
  // Who held the buffers, by number: 0 is not known. Those of a call site are in order.
  const owners = head.owners.map(([path, folded, tensor, kind]) => ({ path: head.texts[path], folded: head.texts[folded], tensor: head.texts[tensor], class: head.texts[kind] }));
  const texts = owners.map(({ folded, tensor }) => [folded, tensor].filter(Boolean).join(" · "));
  const first = new Map(texts.map((text, i) => [text, i])), groupOf = texts.map((text) => first.get(text)); // an owner for each text
  for (const s of sites) s.held = new Set();
  if (owners.length > 1) for (let i = 0; i < lives; i++) if (owner[i]) sites[site[i]].held.add(texts[owner[i]]);

  // The flame graph has a sample for each site: its amounts are those of the selection.
  const SAMPLE = 8, AMOUNTS = ["allocated", "live", "survived"];
  const samples = new Float64Array(sites.length * SAMPLE);
  sites.forEach((s, i) => { samples[i * SAMPLE] = head.sites[i][FIELDS.group]; samples[i * SAMPLE + 1] = s.node; });

  // weights are on how many of the selected chips each allocation of a site is.
  const weightsOf = new Map();
  function weights(chip) {
    if (!weightsOf.has(chip)) {
      weightsOf.set(chip, Float64Array.from(sites, (s) => (chip === "" ? Math.max(1, s.chips.length) : s.chips.includes(Number(chip)) ? 1 : 0)));
    }
    return weightsOf.get(chip);
  }

  // tally adds up what was allocated after the row from and up to the row to, what of that is
  // alive at the row to, and what is live at the row at.
  function tally({ from, to, at, chip }) {
    const weight = weights(chip);
    for (let s = 0; s < sites.length; s++) samples.fill(0, s * SAMPLE + 2, s * SAMPLE + SAMPLE);
    for (let i = 0; i < lives; i++) {
      const b = born[i], d = died[i], s = site[i] * SAMPLE, w = weight[site[i]];
      if (w === 0) continue;
      if (b <= at && d > at) { samples[s + 4] += w; samples[s + 5] += w * bytes[i]; }
      if (b > from && b <= to) {
        samples[s + 2] += w; samples[s + 3] += w * bytes[i];
        if (d > to) { samples[s + 6] += w; samples[s + 7] += w * bytes[i]; }
      }
    }
  }
  // tallyOwners adds up the same for the owners in a region, at call sites that are selected.
  // Owners with the same text are one.
  function tallyOwners({ from, to, at, chip, region }, selected) {
    const weight = weights(chip), rows = new Map();
    const wanted = sites.map((s) => s.region === region && selected(s));
    for (let i = 0; i < lives; i++) {
      const s = site[i], w = weight[s], b = born[i], d = died[i], live = b <= at && d > at, allocated = b > from && b <= to;
      if (w === 0 || !wanted[s] || !(live || allocated)) continue;
      const { pid } = sites[s], group = groupOf[owner[i]], key = pid * owners.length + group;
      let row = rows.get(key);
      if (!row) rows.set(key, row = { pid, owner: owners[group], live: 0, liveCount: 0, allocated: 0, allocatedCount: 0, survived: 0, survivedCount: 0 });
      const size = w * bytes[i];
      if (live) { row.live += size; row.liveCount += w; }
      if (allocated) { row.allocated += size; row.allocatedCount += w; }
      if (allocated && d > to) { row.survived += size; row.survivedCount += w; }
    }
    return [...rows.values()];
  }
  // amount returns count and bytes of a site in the latest tally.
  const amount = (i, name) => {
    const at = i * SAMPLE + 2 + 2 * AMOUNTS.indexOf(name);
    return { count: samples[at], bytes: samples[at + 1] };
  };

  // --- addresses --------------------------------------------------------------
  // liveIn lists the lives in a region of a chip after a row. L1 has the circular buffers too.
  function liveIn(row, region, chip) {
    const weight = weights(String(chip)), list = [];
    const wanted = regionOf.map((r, i) => weight[i] > 0 && (r === region || (region === "L1" && r === "CB")));
    for (let i = 0; i < lives; i++) {
      if (born[i] <= row && died[i] > row && wanted[site[i]]) list.push(i);
    }
    return list;
  }
  const spaceOf = (region, chip) => (head.chips.find((c) => c.id === Number(chip)) || { regions: {} }).regions[region];

  // --- use over time ----------------------------------------------------------
  const lines = head.lines.map((l, n) => {
    const row = columns[`line${n}.row`], values = columns[`line${n}.bytes`], ofStatic = columns[`line${n}.static`];
    return {
      ...l, row, bytes: values, static: ofStatic, capacity: l.capacity_bytes,
      pyramid: newPyramid(values), staticPyramid: ofStatic && newPyramid(ofStatic),
    };
  });
  // useAt returns the bytes of a line after a row, and the part of circular buffers.
  function useAt(line, row) {
    const i = firstAbove(line.row, row) - 1;
    return { bytes: i < 0 ? 0 : line.bytes[i], static: i < 0 || !line.static ? 0 : line.static[i] };
  }

  // --- moments ----------------------------------------------------------------
  const failures = ((head.documents.oom || {}).failures || []).filter((f) => f.time_ns >= head.first_ns).map((f) => {
    const seconds = (f.time_ns - head.first_ns) / 1e9;
    return { ...f, row: columns.failures.find((row) => Math.abs(time[row] - seconds) < 4e-9) ?? rowAt(seconds) };
  });
  const peaks = new Map(); // those of several chips at one row are one
  for (const p of head.peaks) {
    const key = `${p.region} ${p.row}`;
    if (!peaks.has(key)) peaks.set(key, { row: p.row, region: p.region, chips: [], bytes: p.bytes });
    peaks.get(key).chips.push(p.device);
  }
  const stops = [
    ...[...peaks.values()].map((p) => ({ row: p.row, kind: "peak", text: `peak of ${p.region} on ${chipsText(p.chips)}`, region: p.region, chips: p.chips, bytes: p.bytes })),
    ...head.marks.map((m) => ({ row: m.row, kind: "mark", text: `mark ${m.name}` })),
    ...failures.map((f) => ({ row: f.row, kind: "failure", text: `failed allocation: ${f.region}, PID ${f.pid}`, region: f.region, chips: f.devices })),
  ].sort((a, b) => a.row - b.row);

  // fullest is the peak nearest to its capacity.
  function fullest() {
    let best = null, most = -1;
    for (const p of peaks.values()) {
      const line = lines.find((l) => l.region === p.region && l.devices.includes(p.chips[0]));
      const share = line && line.capacity ? p.bytes / line.capacity : 0;
      if (share > most) { most = share; best = p; }
    }
    return best;
  }

  const regions = ["DRAM", "L1", "CB", "L1_SMALL", "TRACE", "SYSTEM_MEMORY", "KERNEL"].filter((r) => regionOf.includes(r));
  const chips = [...new Set(head.sets.flat())].sort((a, b) => a - b);

  return {
    head, texts, last, time, rowAt, firstAbove, born, site, perBank, banks, address, id, sites, regions, chips,
    owner, owners, lines, useAt, stops, failures, fullest, tally, tallyOwners, amount, AMOUNTS, liveIn, spaceOf,
    runs: { row: columns.runRow, of: columns.runOf, count: columns.runCount },
    model: flameModel({ head: { processes: head.processes, groups: head.groups }, ...head.stacks, samples }, AMOUNTS),
  };
}

// A pyramid has the minimum and maximum of each 16 values, of each 256 and so on.
function newPyramid(values) {
  const STEP = 16, levels = [{ min: values, max: values }];
  while (levels.at(-1).min.length > STEP) {
    const { min, max } = levels.at(-1), n = Math.ceil(min.length / STEP);
    const above = { min: new Float64Array(n), max: new Float64Array(n) };
    for (let i = 0; i < n; i++) {
      let low = Infinity, high = -Infinity;
      for (let j = i * STEP; j < Math.min(min.length, (i + 1) * STEP); j++) {
        low = Math.min(low, min[j]);
        high = Math.max(high, max[j]);
      }
      above.min[i] = low; above.max[i] = high;
    }
    levels.push(above);
  }
  // range returns the minimum and maximum of the values from one index up to before another.
  function range(from, to) {
    let low = Infinity, high = -Infinity;
    const add = (level, i) => { low = Math.min(low, levels[level].min[i]); high = Math.max(high, levels[level].max[i]); };
    for (let level = 0; from < to; level++) {
      if (level === levels.length - 1) {
        for (; from < to; from++) add(level, from);
        break;
      }
      for (; from < to && from % STEP; from++) add(level, from);
      for (; from < to && to % STEP; ) add(level, --to);
      from /= STEP; to /= STEP;
    }
    return { low, high };
  }
  return { range };
}

// chipsText writes "chip 3" or "chips 0-31".
function chipsText(list) {
  const parts = [];
  for (let i = 0; i < list.length; ) {
    let j = i;
    while (j + 1 < list.length && list[j + 1] === list[j] + 1) j++;
    parts.push(j > i ? `${list[i]}-${list[j]}` : String(list[i]));
    i = j + 1;
  }
  return list.length ? (list.length === 1 ? "chip " : "chips ") + parts.join(", ") : "an unknown chip";
}
