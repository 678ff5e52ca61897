"use strict";
// The tables of the page: call sites, operations, leaks and failures.
const tables = (() => {
  const { formatBytes } = flameText;
  const SHOWN = 300; // rows: their layout is most of the time of a selection

  function element(tag, text, name) {
    const e = document.createElement(tag);
    e.textContent = text.length > 2000 ? text.slice(0, 2000) + "…" : text;
    if (name) e.className = name;
    return e;
  }

  const AMOUNTS = ["allocated", "live", "survived"]; // those of call sites
  const sortedBy = new Map(); // by the element of the table: the column, and whether it is turned around

  // show writes rows into an element. A column has a title, the value by which it is sorted, and
  // for a number the text of it: the largest number is first, unless it is ascending. The last column is a list of texts: a title with smaller lines.
  function show(at, columns, rows, { click, empty = "Nothing here.", note = "", selected } = {}) {
    const again = () => show(at, columns, rows, { click, empty, note, selected });
    const sort = sortedBy.get(at.id) || { column: 0, turned: false };
    const by = columns[Math.min(sort.column, columns.length - 1)];
    const order = (a, b) => (typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : (b ?? -Infinity) - (a ?? -Infinity));
    rows.sort((a, b) => order(by.value(a), by.value(b)) * (sort.turned !== Boolean(by.ascending) ? -1 : 1));
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    columns.forEach((column, i) => {
      const cell = element("th", ""), button = element("button", column.title);
      cell.scope = "col";
      if (column === by && rows.length) cell.ariaSort = (typeof by.value(rows[0]) === "string" || Boolean(by.ascending)) !== sort.turned ? "ascending" : "descending";
      if (column.explain) button.title = column.explain;
      button.type = "button";
      button.addEventListener("click", () => {
        sortedBy.set(at.id, { column: i, turned: columns[i] === by && !sort.turned });
        again();
      });
      cell.append(button);
      head.append(cell);
    });
    for (const row of rows.slice(0, SHOWN)) {
      const line = body.insertRow();
      if (selected && selected(row)) line.className = "selected";
      for (const column of columns) {
        const cell = line.insertCell();
        if (!column.lines) {
          cell.className = "value";
          cell.textContent = column.text ? column.text(row) : column.value(row);
          continue;
        }
        const [title, ...more] = column.lines(row);
        if (click) {
          const button = element("button", title);
          button.type = "button";
          button.addEventListener("click", () => click(row));
          cell.append(button);
        } else cell.append(element("b", title));
        cell.append(...more.filter(Boolean).map((text) => element("span", text)));
      }
    }
    at.replaceChildren(table);
    if (!rows.length) at.append(element("p", empty));
    if (rows.length > SHOWN) at.append(element("p", `and ${(rows.length - SHOWN).toLocaleString("en-US")} more`));
    if (note) at.append(element("p", note));
  }

  const size = (title, value, explain) => ({ title, explain, value, text: (row) => (value(row) === undefined ? "?" : formatBytes(value(row))) });
  const number = (title, value, explain) => ({ title, explain, value, text: (row) => (value(row) === undefined ? "?" : value(row).toLocaleString("en-US")) });

  // siteRows adds up the call sites of a selection by a key.
  function siteRows(recording, selection, withClass) {
    const { region, process, pattern, by } = selection;
    if (by === "owner") return ownerRows(recording, selection);
    if (by === "class" && !withClass) return classRows(recording, selection);
    const rows = new Map();
    const keyOf = {
      site: (s) => `${s.node} ${s.pid} ${s.kind}`, op: (s) => s.op || "(none)", component: (s) => s.component || "(none)", class: (s) => s.class, process: (s) => s.pid,
    }[by];
    for (const s of recording.sites) {
      if (s.region !== region || (withClass && !s.class) || (process && String(s.pid) !== process)) continue;
      const amounts = Object.fromEntries(AMOUNTS.map((name) => [name, recording.amount(s.i, name)]));
      if (!AMOUNTS.some((name) => amounts[name].count > 0)) continue;
      const who = recording.model.processName(s.pid);
      if (pattern && !pattern.test([s.name, s.callers, s.op, s.component, s.class, s.kind, who, ...s.held].join(" "))) continue;
      const key = keyOf(s);
      let row = rows.get(key);
      if (!row) {
        const texts = {
          site: [s.name, s.callers && "← " + s.callers, heldText(s), [who, s.kind, s.component].filter(Boolean).join(" · ")],
          op: [key], component: [key], class: [key], process: [who, (recording.model.processes.get(s.pid) || {}).host],
        }[by];
        row = { site: s, texts, live: 0, liveCount: 0, allocated: 0, allocatedCount: 0, survived: 0, survivedCount: 0 };
        rows.set(key, row);
      }
      for (const name of AMOUNTS) {
        row[name] += amounts[name].bytes;
        row[name + "Count"] += amounts[name].count;
      }
    }
    return [...rows.values()];
  }

  // heldText lists who holds buffers of a call site.
  function heldText({ held }) {
    const [first, second] = held;
    return held.size === 0 ? "" : `held by ${first}${held.size > 1 ? `, ${second}` : ""}${held.size > 2 ? ` and ${(held.size - 2).toLocaleString("en-US")} more` : ""}`;
  }

  function ownerRows(recording, { process, pattern, ...selection }) {
    const rows = recording.tallyOwners(selection, (s) => !process || String(s.pid) === process);
    for (const row of rows) row.texts = [row.owner.folded || "(owner not known)", row.owner.tensor, recording.model.processName(row.pid)];
    return rows.filter((row) => !pattern || pattern.test(row.texts.join(" ")));
  }

  // classRows adds up the buffers by class: that of their call site, or else of who holds them.
  function classRows(recording, { process, pattern, ...selection }) {
    const rows = siteRows(recording, { process, pattern, ...selection }, true);
    for (const more of recording.tallyOwners(selection, (s) => !s.class && (!process || String(s.pid) === process))) {
      more.texts = [more.owner.class || "(class not known)"];
      if (pattern && !pattern.test([...more.texts, more.owner.path].join(" "))) continue;
      const row = rows.find((r) => r.texts[0] === more.texts[0]);
      if (!row) rows.push(more);
      else for (const name of AMOUNTS) {
        row[name] += more[name];
        row[name + "Count"] += more[name + "Count"];
      }
    }
    return rows;
  }

  function sites(at, recording, selection, click) {
    const moment = selection.from === selection.to;
    const columns = [
      size("Live", (r) => r.live, "at the moment"), number("Buffers", (r) => r.liveCount, "live at the moment"),
      ...(moment ? [] : [
        size("Allocated", (r) => r.allocated, "in the range"), number("Buffers", (r) => r.allocatedCount, "allocated in the range"),
        size("Live after", (r) => r.survived, "allocated in the range and live at its end"), number("Buffers", (r) => r.survivedCount, "allocated in the range and live at its end"),
      ]),
      { title: { site: "Call site", op: "Operation", component: "Component", class: "Class", process: "Process", owner: "Held by" }[selection.by], value: (r) => r.texts[0], lines: (r) => r.texts },
    ];
    const rows = siteRows(recording, selection).filter((r) => !moment || r.liveCount > 0);
    show(at, columns, rows, { click: selection.by === "site" ? (r) => click(r.site) : undefined });
  }

  // functions lists those of the flame graph: what they allocated themselves, and in all with what they called.
  function functions(at, model, tree, pattern, format, click) {
    const placeOf = (f) => (f.file && f.line > 0 ? f.file + ":" + f.line : f.file);
    const share = (title, value, explain) => ({ title, explain, value, text: (f) => `${format(value(f))}  ${flameText.formatPercent(value(f), tree.value[0])}` });
    const rows = model.functions(tree).filter((f) => !pattern || pattern.test([f.name, placeOf(f), f.module].join(" ")));
    show(at, [
      share("Self", (f) => f.self, "allocated by the function itself"), share("Total", (f) => f.total, "allocated by the function and its callees"),
      { title: "Function", value: (f) => f.name, lines: (f) => [f.name || "[unknown]", [placeOf(f), f.module].filter(Boolean).join(" · ")] },
    ], rows, { click });
  }

  // operations lists those of the recording, and how often each ran in the range.
  function operations(at, recording, { from, to, process, pattern }) {
    const { row, of, count } = recording.runs, ran = new Map(), { texts, runs } = recording.head;
    for (let i = recording.firstAbove(row, from); i < row.length && row[i] <= to; i++) {
      const [pid, text] = runs[of[i]], key = `${pid} ${texts[text]}`;
      ran.set(key, (ran.get(key) || 0) + count[i]);
    }
    const doc = recording.head.documents.ops || { operations: [] };
    const inRange = (o) => ran.get(`${o.pid} ${o.name}`) || 0;
    const rows = doc.operations.filter((o) => (!process || String(o.pid) === process) && (!pattern || pattern.test([o.name, o.component, o.process].join(" "))) && (from === to || !row.length || inRange(o) > 0));
    show(at, [
      { ...size("Free", (o) => o.peak.headroom_bytes, "of the core with the least headroom, in the tightest run of the recording"), ascending: true },
      size("Used", (o) => o.peak.bytes), size("Tensors", (o) => o.peak.tensor_bytes), size("CBs", (o) => o.peak.cb_bytes), size("DFBs", (o) => o.peak.dfb_bytes),
      ...(from === to ? [] : [number("Runs in range", inRange)]), number("Runs", (o) => o.runs),
      ...(doc.operations.some((o) => o.replays) ? [number("Replays", (o) => o.replays, "runs by replays of captured traces")] : []),
      { title: "Operation", value: (o) => o.name, lines: (o) => [o.name, `PID ${o.pid} · chip ${o.peak.device} core ${o.peak.core.join(",")} · ${chipsText(o.devices)}`] },
    ], rows, { empty: "No operation ran a program here.", note: doc.omitted ? `${doc.omitted.toLocaleString("en-US")} operations with more headroom are left out.` : "" });
  }

  // leaks lists what leaks or grows in the recording, and what of it was allocated in the range.
  function leaks(at, recording, { from, to, process, region, pattern }, click) {
    const doc = recording.head.documents.leaks || { leaks: [] };
    const growing = [...doc.leaks, ...(doc.undecided || [])];
    const survived = (l) => recording.sitesOf(l).reduce((sum, s) => sum + recording.amount(s.i, "survived").bytes, 0);
    const heldBy = ({ containers = [] }) => containers.slice(0, 3).map((c) => `held by ${c.owner}: ${c.held.map((n) => n.toLocaleString("en-US")).join(" → ")} tensors`);
    const hostGrowth = (doc.host_growth || []).map((h) => `Host memory of PID ${h.pid} grew by ${formatBytes(h.growth_bytes)} to ${formatBytes(h.resident_bytes)}: no device memory.`);
    const all = growing.map((l) => ({ ...l, survived: survived(l) }));
    const rows = all.filter((l) => (!process || String(l.pid) === process) && (!pattern || pattern.test([l.name, l.component, ...heldBy(l)].join(" "))) && (from === to || l.survived > 0));
    show(at, [
      size("Not freed", (l) => l.bytes), number("Buffers", (l) => l.count),
      ...(from === to ? [] : [size("From the range", (l) => l.survived, "allocated by lines of this name in the range, and live at its end")]),
      { title: "Region", value: (l) => l.region },
      { title: "Call site", value: (l) => l.name, lines: (l) => [l.name, ...heldBy(l), l.verdict, `PID ${l.pid} · ${chipsText(l.devices)}`] },
    ], rows, { click, empty: growing.length ? "No growing call site allocated here." : "No leaks found.", note: [...hostGrowth, rows.length && region ? "docs/leaks.md explains what counts as a leak." : ""].join(" ") });
  }

  // said is the text of an exception of the library, without the place of the throw and the stack.
  const said = (message) => (message || "").replace(/^[^]*?info:\n/, "").split("\nbacktrace:")[0];

  // remedies are what to set or to call so that a failed allocation fits.
  function remedies({ setting, clear_program_cache: cached }) {
    const list = setting ? [`It fits if the device is opened with ${setting.name}=${setting.bytes} ${setting.at_most ? "or less" : "or more"}.`] : [];
    return cached ? [`device.clear_program_cache() frees ${formatBytes(cached.bytes_per_bank)} of each bank.`, ...list] : list;
  }

  // failures lists those of the range, or all at a moment.
  function failures(at, recording, { from, to, process, pattern }, click) {
    const rows = recording.failures.filter((f) => (from === to || (f.row > from && f.row <= to)) && (!process || String(f.pid) === process) && (!pattern || pattern.test([f.name, f.process, f.message, f.region].join(" "))));
    show(at, [
      { title: "Time", ascending: true, value: (f) => recording.time[f.row], text: (f) => "+" + recording.time[f.row].toFixed(3) + " s" },
      size("Needed per bank", (f) => f.needed_bytes_per_bank ?? f.needed_bytes), size("Free", (f) => f.available_bytes ?? f.free_bytes_per_bank, "in each bank"), size("Largest hole", (f) => f.largest_free_block_bytes),
      { title: "Region", value: (f) => f.region }, { title: "Reason", value: (f) => (f.too_large ? "too large" : (f.reason || "other").replaceAll("_", " ")) },
      { title: "Call site", value: (f) => f.name || "", lines: (f) => [f.name || "(no call stack)", `PID ${f.pid} ${f.process || ""} · ${chipsText(f.devices)}`, ...remedies(f), said(f.message)] },
    ], rows, { click, empty: "No allocation failed here.", selected: (f) => from === to && f.row === to });
  }

  // holders lists what was live in the region of a failed allocation, and says what was in the way.
  // lives are those of the region then.
  function holders(at, way, f, recording, lives) {
    const { sites, site, address, owner, texts } = recording;
    const heldBy = (h) => heldText({ held: new Set(lives.filter((i) => {
      const s = sites[site[i]];
      return owner[i] && s.pid === f.pid && address[i] >= h.lowest_address && address[i] < h.end_address && (!h.name || s.name === h.name);
    }).map((i) => texts[owner[i]])) });
    const { blocking, blockers = [] } = f;
    const callers = (h) => {
      const lines = (h.stack || []).filter((x) => x.kind === "python").map((x) => `${(x.file || "").split("/").pop()}:${x.line} ${x.name}`);
      return lines.slice(lines.findIndex((line) => h.name.startsWith(line)) + 1).slice(0, 3).join(" ← ");
    };
    const count = (n) => `${n.toLocaleString("en-US")} buffer${n === 1 ? "" : "s"}`;
    way.textContent = !blocking || !blocking.buffers ? "" : `It fits if you free ${count(blocking.buffers)}, ${formatBytes(blocking.bytes_per_bank)} per bank: ${blockers.map((b) => b.name || "(no call stack)").join("; ")}`;
    show(at, [
      size("Per bank", (h) => h.bytes_per_bank), number("Buffers", (h) => h.buffers),
      { title: "Addresses", ascending: true, value: (h) => h.lowest_address, text: (h) => `0x${h.lowest_address.toString(16)} to 0x${h.end_address.toString(16)}` },
      { title: "Call site", value: (h) => h.name, lines: (h) => [h.name || (h.before_attach ? "allocated before ttmem attached" : "(no call stack)"), callers(h) && "← " + callers(h), heldBy(h), h.kept && "retained by " + h.kept] },
    ], f.holders || [], { empty: "" });
  }

  // advice lists what is held after its last use at the peaks of the recording.
  function advice(at, recording, { from, to, process, pattern }, click) {
    const lastUse = (l) => (l.unused ? "never used" : `last used by ${l.last_use || "(no call stack)"}, ${l.runs.toLocaleString("en-US")} run${l.runs === 1 ? "" : "s"} before the peak`);
    const rows = recording.advice.filter((l) => (from === to || (l.row > from && l.row <= to)) && (!process || String(l.pid) === process) && (!pattern || pattern.test([l.name, l.owner, l.last_use].join(" "))));
    const peak = (p, freed) => (freed.proved ? `${formatBytes(p.shown(freed.peak_bytes))}, proved by replay` : `not proved: ${freed.reason}`);
    const whole = recording.advicePeaks.map((p) => `${p.region === "L1" ? "L1 per core, tensors" : p.region}: peak ${formatBytes(p.shown(p.peak_bytes))}` + (p.all_freed ? `; if all is freed after its last use ${peak(p, p.all_freed)}.` : "; nothing to gain."));
    show(at, [
      size("Held", (l) => l.peak.shown(l.bytes), "at the peak of the region in the recording, and not used any more"), number("Buffers", (l) => l.count),
      size("Peak if freed", (l) => (l.freed.proved ? l.peak.shown(l.freed.peak_bytes) : undefined), "if the buffers of this line are freed after their last use, as replay proves"),
      { title: "Region", value: (l) => l.region },
      { title: "Call site", value: (l) => l.name, lines: (l) => [l.name || "(no call stack)", l.owner && `held by ${l.owner}`, lastUse(l), !l.freed.proved && `not proved: ${l.freed.reason}`, `PID ${l.pid} · ${chipsText(l.devices)}`] },
    ], rows, { click, empty: "Nothing is held after its last use here.", note: [...whole, ...recording.head.documents.advise.limits].join(" ") });
  }

  return { sites, functions, operations, leaks, failures, holders, advice, sortedBy };
})();
