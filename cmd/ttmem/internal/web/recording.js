"use strict";
// A recording: its rows are the beginning and then each event, its lives are the allocations.
// Amounts are added up from the lives for any moment or range of rows.
function newRecording({ head, columns }) {
  const { born, site, perBank, banks, address, id, owner } = columns;
  const rows = columns.time.length, last = rows - 1, lives = born.length;
  const NEVER = 0xffffffff;
  const FIELDS = { node: 0, whole: 1, group: 2, set: 3, name: 4, op: 5, component: 6, kind: 7, callers: 8, class: 9 }; // see siteNode in write.go

  // In seconds since the beginning.
  const time = columns.time;
  for (let i = 0; i < rows; i++) time[i] /= 1e9;

  const died = columns.lived;
  for (let i = 0; i < lives; i++) died[i] = died[i] ? born[i] + died[i] : NEVER;

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
      i, pid, region, node: s[FIELDS.node], whole: s[FIELDS.whole], chips: head.sets[s[FIELDS.set]], name: text("name"), op: text("op"),
      component: text("component"), kind: text("kind"), callers: text("callers"), class: text("class"),
    };
  });
  const regionOf = sites.map((s) => s.region);
  // The use of L1 is that of a core; of other regions, that of all banks.
  const bytes = new Float64Array(lives);
  for (let i = 0; i < lives; i++) bytes[i] = regionOf[site[i]] === "L1" ? perBank[i] : perBank[i] * banks[i];

  // --- owners ---------------------------------------------------------------
  // Who held the buffers, by number: 0 is not known. Those of a call site are in order.
  const owners = head.owners.map(([path, folded, tensor, kind]) => ({ path: head.texts[path], folded: head.texts[folded], tensor: head.texts[tensor], class: head.texts[kind] }));
  const texts = owners.map(({ folded, tensor }) => [folded, tensor].filter(Boolean).join(" · "));
  const first = new Map(texts.map((text, i) => [text, i])), groupOf = texts.map((text) => first.get(text)); // an owner for each text
  for (const s of sites) s.held = new Set();
  if (owners.length > 1) for (let i = 0; i < lives; i++) if (owner[i]) sites[site[i]].held.add(texts[owner[i]]);

  // The flame graph has a sample for each site: its amounts are those of the selection.
  const AMOUNTS = ["allocated", "live", "survived", "peak"], SAMPLE = 3 + 2 * AMOUNTS.length;
  const ALLOCATED = 3, LIVE = 5, SURVIVED = 7, PEAK = 9; // where the count is, before the bytes
  const samples = new Float64Array(sites.length * SAMPLE);
  sites.forEach((s, i) => samples.set([head.sites[i][FIELDS.group], s.node, head.sites[i][FIELDS.whole]], i * SAMPLE));
  function addTo(site, amount, count, bytes) {
    samples[site * SAMPLE + amount] += count;
    samples[site * SAMPLE + amount + 1] += count * bytes;
  }

  // weights are on how many of the selected chips each allocation of a site is.
  const weightsOf = new Map();
  function weights(chip) {
    if (!weightsOf.has(chip)) {
      weightsOf.set(chip, Float64Array.from(sites, (s) => (chip === "" ? Math.max(1, s.chips.length) : s.chips.includes(Number(chip)) ? 1 : 0)));
    }
    return weightsOf.get(chip);
  }

  // chipsOf are the selected chips of a line.
  const chipsOf = (line, chip) => line.devices.filter((d) => chip === "" || d === Number(chip));

  // tally adds up what was allocated after the row from and up to the row to, what of that is
  // alive at the row to, what is live at the row at, and what was live in the region when each chip used most
  // of it from the row from to the row to. The program that runs at a row is live, and nothing of the others.
  function tally({ from, to, at, chip, region }) {
    const weight = weights(chip);
    for (let s = 0; s < sites.length; s++) samples.fill(0, s * SAMPLE + ALLOCATED, (s + 1) * SAMPLE);
    for (let i = 0; i < lives; i++) {
      const b = born[i], d = died[i], w = weight[site[i]];
      if (w === 0) continue;
      if (b <= at && d > at) addTo(site[i], LIVE, w, bytes[i]);
      if (b > from && b <= to) {
        addTo(site[i], ALLOCATED, w, bytes[i]);
        if (d > to) addTo(site[i], SURVIVED, w, bytes[i]);
      }
    }
    for (const line of lines) {
      const on = chipsOf(line, chip), program = (row, amount) => {
        const u = useAt(line, row);
        if (u.static > 0) addTo(u.site, amount, on.length, u.static);
      };
      program(at, LIVE);
      if (line.region !== region || from === to || !on.length) continue;
      const row = fullestRow(line, from, to);
      const of = sites.map((s) => (s.region === region ? on.filter((d) => s.chips.includes(d)).length : 0));
      for (let i = 0; i < lives; i++) if (born[i] <= row && died[i] > row && of[site[i]]) addTo(site[i], PEAK, of[site[i]], bytes[i]);
      program(row, PEAK);
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
    const at = i * SAMPLE + ALLOCATED + 2 * AMOUNTS.indexOf(name);
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
      ...l, row, bytes: values, static: ofStatic, by: columns[`line${n}.by`], capacity: l.capacity_bytes,
      pyramid: newPyramid(values), staticPyramid: ofStatic && newPyramid(ofStatic),
    };
  });
  // useAt returns the bytes of a line after a row, the part of the program that runs, and its site.
  function useAt(line, row) {
    const i = firstAbove(line.row, row) - 1;
    if (i < 0 || !line.static || !line.static[i]) return { bytes: i < 0 ? 0 : line.bytes[i], static: 0, site: -1 };
    return { bytes: line.bytes[i], static: line.static[i], site: head.runs[line.by[i]][2] };
  }
  // fullestRow returns the first row from one to another after which a line is highest.
  function fullestRow(line, from, to) {
    let best = from, most = useAt(line, from).bytes;
    for (let i = firstAbove(line.row, from); i < line.row.length && line.row[i] <= to; i++) {
      if (line.bytes[i] > most) { most = line.bytes[i]; best = line.row[i]; }
    }
    return best;
  }

  // --- moments ----------------------------------------------------------------
  const failures = ((head.documents.oom || {}).failures || []).filter((f) => f.time_ns >= head.first_ns).map((f) => {
    const seconds = (f.time_ns - head.first_ns) / 1e9;
    return { ...f, row: columns.failures.find((row) => Math.abs(time[row] - seconds) < 4e-9) ?? rowAt(seconds) };
  });
  // The lines of `ttmem advise`, with their bytes at a peak as the page has them: of L1 on a core, of DRAM in all banks. peaks
  // are those of the regions.
  const advicePeaks = ((head.documents.advise || {}).peaks || []).map((p) => {
    const shown = (n) => (p.region === "L1" ? n / (spaceOf("L1", p.devices[0]) || { banks: 1 }).banks : n);
    return { ...p, shown, row: rowAt((p.time_ns - head.first_ns) / 1e9 + 4e-9) };
  });
  const advice = advicePeaks.flatMap((peak) => peak.lines.map((line) => ({ ...line, peak, pid: peak.pid, region: peak.region, devices: peak.devices, row: peak.row })));
  const peaks = new Map(); // those of several chips at one row are one
  for (const p of head.peaks) {
    const key = `${p.region} ${p.row}`;
    if (!peaks.has(key)) peaks.set(key, { row: p.row, region: p.region, chips: [] });
    peaks.get(key).chips.push(p.device);
  }
  const stops = [
    ...[...peaks.values()].map((p) => ({ row: p.row, kind: "peak", text: `peak of ${p.region} on ${chipsText(p.chips)}`, region: p.region, chips: p.chips })),
    ...(head.story && head.story.kind === "leak" ? [{ ...head.story, text: `largest leak of ${head.story.region} on ${chipsText(head.story.chips)}` }] : []),
    ...head.marks.map((m) => ({ row: m.row, kind: "mark", text: `mark ${m.name}` })),
    ...failures.map((f) => ({ row: f.row, kind: "failure", text: `failed allocation: ${f.region}, PID ${f.pid}`, region: f.region, chips: f.devices })),
  ].sort((a, b) => a.row - b.row);

  // sitesOf are those of a leak.
  const sitesOf = (leak) => sites.filter((s) => s.pid === leak.pid && s.region === leak.region && s.name === leak.name);
  const used = new Set(lines.map((l) => l.region)); // L1 may have programs only
  for (let i = 0; i < lives; i++) used.add(regionOf[site[i]]);
  const regions = ["DRAM", "L1", "L1_SMALL", "TRACE", "SYSTEM_MEMORY", "KERNEL"].filter((r) => used.has(r));
  const chips = [...new Set(head.sets.flat())].sort((a, b) => a - b);

  return {
    head, texts, last, time, rowAt, firstAbove, born, died, site, bytes, perBank, banks, address, id, sites, regions, chips,
    owner, owners, groupOf, lines, useAt, chipsOf, weights, stops, failures, advice, advicePeaks, sitesOf, tally, tallyOwners, amount, AMOUNTS, liveIn, spaceOf,
    runs: { row: columns.runRow, of: columns.runOf, count: columns.runCount },
    model: flameModel({ head, ...head.stacks, samples }, AMOUNTS),
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
