"use strict";
// The page: what is selected, and showing it everywhere.
(async () => {
  const $ = (id) => document.getElementById(id);
  $("detail").textContent = "Loading…";
  const recording = newRecording(await recordingSource.load());
  const { head, model, time, last, sites } = recording;
  const { formatBytes, formatCount, formatPercent, patternOf } = flameText;
  const VIEWS = ["flame", "sites", "addresses", "operations", "leaks", "failures", ...(head.documents.advise ? ["advice"] : [])];
  const CONTROLS = ["region", "chip", "process", "layout", "unit", "by"];

  // The selection is the rows from and to, which are the same for a moment, and at, the moment
  // whose live memory is shown: within the range, or its end.
  const selection = { from: 0, to: last, at: last };
  let view = "flame", range = "allocated"; // what is shown of a range
  let pattern = null, tree = null, marks = null, zoomTo = null;
  const isMoment = () => selection.from === selection.to;
  const formatValue = (n) => ($("unit").value === "bytes" ? formatBytes(n) : formatCount(n));

  const timeline = newTimeline(recording, { canvas: $("lanes"), overlay: $("overlay"), scroll: $("times"), tip: $("tip") }, {
    selected(from, to, done, at = to) { Object.assign(selection, { from, to, at }); changed(done); },
    picked(line) {
      const chip = $("chip").value;
      if ($("region").value === regionOf(line.region) && (chip === "" || line.devices.includes(Number(chip)))) return;
      $("region").value = regionOf(line.region);
      if (recording.lines.filter((l) => l.region === line.region).length > 1) $("chip").value = String(line.devices[0]);
      changed(true);
    },
    pickedArea({ site, row }) {
      Object.assign(selection, { from: row, to: row, at: row });
      if (site) showSite(site);
      else changed(true);
    },
  });
  const flame = flameView(model, {
    canvas: $("canvas"), view: $("view"), spacer: $("spacer"), tip: $("tip"), empty: $("empty"), detail: $("detail"),
  }, {
    formatValue,
    isFlame: () => $("layout").value === "flame",
    zoomed: () => { tellMatched(); store(true); },
  });
  const map = newAddressMap(recording, { canvas: $("map"), tip: $("tip"), about: $("mapAbout") });
  const failureMap = newAddressMap(recording, { canvas: $("failureMap"), tip: $("tip"), about: $("failureAbout") });

  // --- what is shown --------------------------------------------------------
  const amount = () => (isMoment() ? "live" : range);
  const chosen = () => ({
    ...selection, region: $("region").value, chip: $("chip").value, process: $("process").value, by: $("by").value, pattern,
  });

  let pending = 0, stored = true;
  function changed(done) {
    stored &&= !done;
    pending ||= requestAnimationFrame(() => {
      pending = 0;
      update();
      if (!stored) store(false);
      stored = true;
    });
  }

  function update() {
    const c = chosen();
    $("amount").value = amount();
    $("amount").disabled = isMoment();
    timeline.select(c);
    recording.tally(c);
    tellAbout(c);
    const scrubber = $("scrubber");
    scrubber.min = isMoment() ? 0 : c.from;
    scrubber.max = isMoment() ? last : c.to;
    scrubber.value = c.at;
    $("stops").value = $("detail").textContent = "";
    for (const name of VIEWS) $(name).hidden = name !== view;
    for (const tab of $("views").children) tab.ariaSelected = String(tab.dataset.view === view);
    shows[view](c);
    tellMatched();
  }

  const shows = {
    flame(c) {
      const isTable = $("layout").value === "table";
      tree = model.build({
        ...c, amount: amount(), unit: $("unit").value, all: $("all").checked, inverted: $("layout").value === "inverted",
        title: [c.region === "L1" ? "L1 per core" : c.region, isMoment() ? "" : $("amount").selectedOptions[0].text, c.process && pids.length > 1 ? `of ${model.processName(Number(c.process))}` : ""].filter(Boolean).join(" "),
      });
      marks = pattern ? model.mark(tree, pattern) : null;
      $("view").hidden = isTable;
      $("functions").hidden = !isTable;
      $("empty").textContent = c.region === "L1" && !isMoment() && amount() !== "peak" ? "No buffers here. Programs show only at a moment and at the peak." : "Nothing here.";
      flame.show(tree, marks, zoomTo ? zoomTo(tree) : 0);
      zoomTo = null;
      if (isTable) tables.functions($("functions"), model, tree, pattern, formatValue, searchFunction);
      else $("detail").textContent = `Each box is a function; its width is the memory ${tree.inverted ? "that the boxes above allocated through it" : "that it and its callees allocated"}.`;
    },
    sites: (c) => tables.sites($("siteTable"), recording, c, showSite),
    addresses: (c) => map.show(c.at, bankedRegion(c.region), chipFor(c)),
    operations: (c) => tables.operations($("operationTable"), recording, c),
    leaks: (c) => tables.leaks($("leakTable"), recording, c, (leak) => {
      $("region").value = leak.region;
      const [site] = recording.sitesOf(leak);
      Object.assign(selection, { from: 0, to: last, at: last });
      range = "survived";
      if (site) showSite(site);
    }),
    failures(c) {
      tables.failures($("failureTable"), recording, c, (f) => {
        $("region").value = regionOf(bankedRegion(f.region));
        if (f.devices.length && recording.chips.length > 1) $("chip").value = String(f.devices[0]);
        Object.assign(selection, { from: f.row, to: f.row, at: f.row });
        changed(true);
      });
      const f = recording.failures.find((f) => f.row === c.at);
      $("failureAbout").textContent = recording.failures.length ? "Select a failed allocation to see the banks at that moment." : "";
      $("failureMap").parentElement.hidden = !f;
      $("failureWay").hidden = $("holderTable").hidden = !f;
      if (!f) return;
      const region = bankedRegion(f.region), chip = f.devices[0] ?? chipFor(c);
      failureMap.show(f.row, region, chip);
      tables.holders($("holderTable"), $("failureWay"), f, recording, recording.liveIn(f.row, region, chip));
    },
    advice: (c) => tables.advice($("adviceTable"), recording, c, (line) => {
      $("region").value = regionOf(line.region);
      if (recording.chips.length > 1) $("chip").value = String(line.devices[0]);
      const [site] = recording.sitesOf(line);
      Object.assign(selection, { from: line.row, to: line.row, at: line.row });
      if (site) showSite(site);
      else changed(true);
    }),
  };
  // Circular buffers are in L1, and kernels in DRAM.
  const bankedRegion = (region) => ({ CB: "L1", KERNEL: "DRAM" })[region] || region;
  const regionOf = (region) => (recording.regions.includes(bankedRegion(region)) ? bankedRegion(region) : $("region").value);
  const chipFor = (c) => (c.chip !== "" ? Number(c.chip) : ((recording.lines.find((l) => l.region === bankedRegion(c.region)) || { devices: recording.chips }).devices[0] ?? 0));

  // showSite zooms the flame graph to a call site.
  function showSite(site) {
    view = "flame";
    if ($("layout").value === "table") $("layout").value = "icicle";
    zoomTo = (tree) => Math.max(0, tree.node.indexOf(tree.shape.of[$("all").checked ? site.whole : site.node]));
    $("region").value = regionOf(site.region);
    changed(true);
  }

  // searchFunction searches a function in the graph.
  function searchFunction(f) {
    $("search").value = "^" + [f.name, f.file].map((s) => s.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join(" ");
    $("layout").value = "icicle";
    readPattern();
    changed(true);
  }

  const clock = (row) => "+" + time[row].toFixed(6) + " s";
  function tellAbout(c) {
    const parts = [isMoment() ? `At ${clock(c.at)}, after event ${c.at.toLocaleString("en-US")}` : `From ${clock(c.from)} to ${clock(c.to)}: ${(c.to - c.from).toLocaleString("en-US")} events`];
    if (c.at !== c.to) parts.push(`live at ${clock(c.at)}`);
    parts.push(...useText(c));
    const here = recording.stops.filter((s) => s.row === c.at && isMoment()).slice(0, 3).map((s) => s.text);
    $("about").textContent = [...parts, ...here].join(" · ");
  }

  // useText says how much of the region is in use: what the flame graph adds up.
  function useText({ region, chip, process, at }) {
    let use = 0, capacity = 0, sum = 0;
    const chips = [];
    for (const line of recording.lines.filter((l) => l.region === region)) {
      const on = recording.chipsOf(line, chip);
      chips.push(...on);
      use += on.length * recording.useAt(line, at).bytes;
      capacity += on.length * line.capacity;
    }
    for (const s of sites) if (s.region === region && (!process || String(s.pid) === process)) sum += recording.amount(s.i, "live").bytes;
    if (!chips.length) return region === "KERNEL" && sum ? [`kernels: ${formatBytes(sum)}`] : [];
    chips.sort((a, b) => a - b);
    const list = [`${region === "L1" ? "L1 per core" : region} of ${chipsText(chips)}${chips.length > 1 ? " together" : ""}: ${formatBytes(use)}${capacity ? ` of ${formatBytes(capacity)}, ${formatPercent(use, capacity)}` : ""}`];
    if (!process && sum !== use) list.push(`${formatBytes(sum)} with ${region === "L1" ? "all buffers on single cores, and" : ""} memory that two allocators share counted twice`);
    return list;
  }

  function tellMatched() {
    $("matched").textContent = pattern === undefined ? "not a regular expression"
      : view === "flame" && marks ? model.found(tree, marks, flame.zoomed(), formatValue) : "";
  }

  // --- controls ---------------------------------------------------------------
  const add = (select, value, label, title = "") => { const o = new Option(label, value); o.title = title; select.add(o); };
  for (const region of recording.regions) add($("region"), region, region);
  if (recording.chips.length !== 1) add($("chip"), "", "all chips");
  for (const chip of recording.chips) add($("chip"), String(chip), `chip ${chip}`);
  const pids = [...new Set(sites.map((s) => s.pid))], hostOf = (pid) => (model.processes.get(pid) || {}).host;
  if (pids.length !== 1) add($("process"), "", "all processes");
  for (const pid of pids) add($("process"), String(pid), model.processName(pid), [(model.processes.get(pid) || {}).command, hostOf(pid)].filter(Boolean).join("\n"));
  add($("stops"), "", `${recording.stops.length.toLocaleString("en-US")} peaks, marks, failures`);
  recording.stops.slice(0, 1000).forEach((s, i) => add($("stops"), String(i), `${clock(s.row)} ${s.text}`));
  VIEWS.forEach((name, i) => {
    const tab = document.createElement("button");
    tab.type = "button"; tab.role = "tab"; tab.dataset.view = name;
    const { leaks = [], undecided = [] } = head.documents.leaks || {};
    const count = { leaks: leaks.length + undecided.length, failures: recording.failures.length, advice: recording.advice.length }[name];
    tab.textContent = $(name).ariaLabel + (count ? ` (${count.toLocaleString("en-US")})` : "");
    tab.title = `key ${i + 1}`;
    tab.addEventListener("click", () => { view = name; changed(true); });
    $("views").append(tab);
  });
  $("lastView").textContent = VIEWS.length;
  if (recording.owners.length === 1) $("by").remove([...$("by").options].findIndex((o) => o.value === "owner"));
  for (const id of [...CONTROLS, "all"]) $(id).addEventListener("change", () => changed(true));
  $("amount").addEventListener("change", () => { range = $("amount").value; changed(true); });
  $("stops").addEventListener("change", () => { if ($("stops").value) goTo(recording.stops[Number($("stops").value)]); });
  $("search").addEventListener("input", () => { readPattern(); changed(true); });
  $("controls").addEventListener("submit", (e) => e.preventDefault());
  $("scrubber").addEventListener("input", () => {
    const at = Number($("scrubber").value);
    Object.assign(selection, isMoment() ? { from: at, to: at, at } : { at });
    changed(true);
  });
  $("whole").addEventListener("click", () => { Object.assign(selection, { from: 0, to: last, at: last }); changed(true); });

  function readPattern() {
    pattern = patternOf($("search").value);
    $("search").classList.toggle("bad", pattern === undefined);
  }

  function goTo(stop) {
    Object.assign(selection, { from: stop.row, to: stop.row, at: stop.row });
    if (stop.region) $("region").value = regionOf(stop.region);
    if (stop.chips && $("chip").value !== "" && !stop.chips.includes(Number($("chip").value))) $("chip").value = String(stop.chips[0] ?? "");
    changed(true);
  }

  function reset() {
    $("search").value = "";
    readPattern();
    zoomTo = null;
    changed(true);
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = document.activeElement && document.activeElement.tagName === "INPUT" && document.activeElement.type === "search";
    if (e.key === "Escape") {
      reset();
      if (typing) $("overlay").focus();
    } else if (typing || document.activeElement.tagName === "SELECT") {
      return;
    } else if (e.key === "/") {
      e.preventDefault();
      $("search").focus();
      $("search").select();
    } else if (VIEWS[Number(e.key) - 1]) {
      view = VIEWS[Number(e.key) - 1];
      changed(true);
    } else if (e.key === "n" || e.key === "p") {
      const { stops } = recording, at = selection.at;
      const stop = e.key === "n" ? stops.find((s) => s.row > at) : stops.findLast((s) => s.row < at);
      if (stop) goTo(stop);
    }
  });

  // --- the address --------------------------------------------------------------
  // Rows are in the address, because the same page has the same rows.
  const usual = Object.fromEntries(CONTROLS.map((id) => [id, $(id).options[0] ? $(id).options[0].value : ""]));
  const { story } = head, usualView = story ? { failure: "failures", leak: "leaks", peak: "flame" }[story.kind] : "flame";
  if (story && recording.regions.includes(bankedRegion(story.region))) usual.region = bankedRegion(story.region);
  if (story && story.chips && story.chips.length && recording.chips.length > 1) usual.chip = String(story.chips[0]);
  function store(step) {
    const name = (row) => (head.live && row === last ? "end" : row); // which moves on
    const values = { at: isMoment() ? name(selection.at) : "", range: isMoment() ? "" : `${selection.from}-${name(selection.to)}`, view: view === usualView ? "" : view };
    if (!isMoment() && selection.at !== selection.to) values.at = selection.at;
    if (!isMoment() && range !== "allocated") values.amount = range;
    for (const id of CONTROLS) values[id] = $(id).value === usual[id] ? "" : $(id).value || "all";
    values.all = $("all").checked ? "1" : "";
    values.search = $("search").value;
    values.zoom = tree && view === "flame" ? flameState.pathTo(tree, flame.zoomed()) : "";
    for (const name in values) values[name] = String(values[name]);
    flameState.write(values, step);
  }

  function restore() {
    const state = flameState.read();
    for (const id of CONTROLS) {
      $(id).value = state.get(id) === "all" ? "" : state.get(id) ?? usual[id];
      if ($(id).selectedIndex < 0) $(id).value = usual[id];
    }
    const row = (text) => (text === "end" ? last : /^\d+$/.test(text) ? Math.min(last, Number(text)) : null);
    const [from, to] = (state.get("range") || "").split("-").map(row), at = row(state.get("at") ?? "");
    if (from != null && to != null && from < to) Object.assign(selection, { from, to, at: at !== null && at >= from && at <= to ? at : to });
    else if (at !== null) Object.assign(selection, { from: at, to: at, at });
    else if (story) Object.assign(selection, { from: story.row, to: story.row, at: story.row });
    else Object.assign(selection, { from: 0, to: last, at: last });
    view = VIEWS.includes(state.get("view")) ? state.get("view") : usualView;
    range = recording.AMOUNTS.includes(state.get("amount")) ? state.get("amount") : "allocated";
    $("all").checked = state.get("all") === "1";
    $("search").value = state.get("search") || "";
    readPattern();
    zoomTo = state.get("zoom") ? (tree) => flameState.find(tree, state.get("zoom")) : null;
    update();
  }
  window.addEventListener("popstate", restore);

  const seconds = (time[last] - time[0]).toFixed(3);
  $("what").textContent = [
    head.of, pids.length === 1 ? model.processName(pids[0]) : `${pids.length} processes`, pids.length === 1 && hostOf(pids[0]), chipsText(recording.chips),
    `${last.toLocaleString("en-US")} events in ${seconds} s`, head.live && "live", head.begun_ns ? "from " + new Date(head.begun_ns / 1e6).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "",
  ].filter(Boolean).join(" · ");
  for (const note of head.notes || []) {
    const p = document.createElement("p");
    p.className = "note";
    p.textContent = note;
    document.querySelector("header").append(p);
  }
  $("detail").textContent = "";
  restore();
  timeline.draw();

  // A page of now loads itself again while the newest events are shown and nobody does anything. What
  // its address lacks, it finds in the history.
  const keep = () => ({
    sorted: [...tables.sortedBy], zoomed: timeline.zoomed(), focus: document.activeElement.id,
    scrolled: [...document.querySelectorAll("[id]")].filter((e) => e.scrollTop > 0).map((e) => [e.id, e.scrollTop]),
  });
  function resume({ sorted, zoomed, focus, scrolled }) {
    for (const [id, by] of sorted) tables.sortedBy.set(id, by);
    if (zoomed) timeline.zoomTo(zoomed);
    update();
    if (focus) $(focus).focus();
    for (const [id, top] of scrolled) $(id).scrollTop = top;
  }
  if (head.live) {
    if (history.state) resume(history.state);
    // a large page is made and read less often
    const took = performance.now() - performance.getEntriesByType("navigation")[0].requestStart, rest = Math.min(30_000, Math.max(2000, 5 * took));
    let touched = 0;
    for (const kind of ["mousedown", "keydown", "input", "wheel", "scroll"]) document.addEventListener(kind, () => { touched = performance.now(); }, true);
    setInterval(() => {
      const patience = document.activeElement.tagName === "SELECT" ? Math.max(rest, 10_000) : rest; // its list may be open
      if (document.hidden || selection.to !== last || performance.now() - touched < patience) return;
      history.replaceState(keep(), "");
      location.reload();
    }, 1000);
  }

  // For tests and for the console.
  window.ttmem = { recording, timeline, map, failureMap, boxes: () => (tree ? flame.boxes() : []), selection, update };
})().catch((e) => {
  document.getElementById("detail").textContent = `This page cannot be shown: ${e}. It needs a browser of 2023 or later.`;
  throw e;
});
