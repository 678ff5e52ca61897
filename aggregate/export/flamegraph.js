"use strict";
// The page of flamegraph.html: its controls, search and address.
(() => {
  const $ = (id) => document.getElementById(id);
  const flame = flameModel(JSON.parse($("data").textContent), ["allocated", "live", "peak"]);
  const { NATIVE, PYTHON, groups, frames, processes, processName } = flame;
  const { formatBytes, formatCount, patternOf } = flameText;
  const CHOICES = ["amount", "unit", "process", "device", "region", "split"];

  let tree; // see flame.build
  let usual; // the values of the controls at the beginning
  const formatValue = (n) => ($("unit").value === "bytes" ? formatBytes(n) : formatCount(n));
  const isTable = () => $("layout").value === "table";
  const view = flameView(flame, {
    canvas: $("canvas"), view: $("view"), spacer: $("spacer"), tip: $("tip"), empty: $("empty"), detail: $("detail"),
  }, {
    formatValue,
    isFlame: () => $("layout").value === "flame",
    zoomed: () => { tellMatched(); store(true); },
  });

  // --- search -------------------------------------------------------------
  let pattern = null; // null: nothing is searched
  let marks = null;   // see flame.mark

  function search() {
    readPattern();
    mark();
    tellMatched();
  }

  function readPattern() {
    pattern = patternOf($("search").value);
    $("search").classList.toggle("bad", pattern === undefined);
  }

  function mark() {
    marks = pattern ? flame.mark(tree, pattern) : null;
    view.mark(marks);
  }

  function tellMatched() {
    $("matched").textContent = pattern === undefined ? "not a regular expression"
      : marks ? flame.found(tree, marks, view.zoomed(), $("native").checked, formatValue) : "";
  }

  // rebuild after another selection starts from the root.
  function rebuild() {
    const choice = Object.fromEntries(CHOICES.map((id) => [id, $(id).value]));
    choice.native = $("native").checked;
    choice.inverted = $("layout").value === "inverted";
    tree = flame.build(choice);
    view.show(tree, null);
    mark();
    tellMatched();
    tellAbout();
    $("detail").textContent = `Each box is a function; its width is the memory ${tree.inverted ? "allocated there by the boxes above" : "that it and what it called allocated"}.`;
    view.scrollTo0();
    show();
  }

  // show draws the graph, or writes the table.
  function show() {
    $("view").hidden = isTable();
    $("functions").hidden = !isTable();
    if (isTable()) {
      flameTable.show($("functions"), flame, tree, $("unit").value, pattern, (f) => {
        $("search").value = "^" + [f.name, f.file].map((s) => s.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join(" ");
        $("layout").value = "icicle";
        readPattern();
        changed();
      });
    }
    view.redraw();
  }

  function changed() {
    rebuild();
    store(false);
  }

  function tellAbout() {
    const amount = { peak: "live at the peak", live: "live at the end", allocated: "allocated in all" }[$("amount").value];
    let s = `${$("region").value}: ${formatBytes(tree.bytes[0])} in ${formatCount(tree.count[0])} ${amount}`;
    if ($("amount").value === "peak") {
      const device = $("device").value;
      // circular buffers are part of the peak of L1, kernels of that of DRAM
      const region = { CB: "L1", KERNEL: "DRAM" }[$("region").value] || $("region").value;
      const peaks = (flame.head.peaks || []).filter((p) => (!device || p[0] === device) && p[1] === region);
      s += peaks.length === 1
        ? ` of ${peaks[0][1]} on ${peaks[0][0]}: ${formatBytes(peaks[0][2])}${peaks[0][1] === "L1" ? " per core" : ""} at ${peaks[0][3].toFixed(3)} s`
        : ` of ${region} of each device`;
    } else if ($("amount").value === "live") {
      s += " (not given back)";
    }
    $("about").textContent = s;
  }

  // --- what the user does -------------------------------------------------
  function options(select, all, values, title) {
    if (all && values.length > 1) select.add(new Option(all, ""));
    for (const [value, label] of values) {
      const option = new Option(label, value);
      option.title = title ? title(value) : "";
      select.add(option);
    }
  }
  const unique = (list) => [...new Set(list)];
  options($("process"), "all processes", unique(groups.map((g) => g.pid)).map((pid) => [pid, processName(pid)]), (pid) => (processes.get(Number(pid)) || {}).command || "");
  options($("device"), "all devices", unique(groups.map((g) => g.device)).map((d) => [d, d]));
  options($("region"), "", unique(groups.map((g) => g.region)).map((r) => [r, r]));

  // native frames can be hidden where there is Python
  $("native").checked = !frames.some((f) => f.kind === PYTHON);
  $("natives").hidden = $("native").checked || !frames.some((f) => f.kind === NATIVE);

  for (const id of [...CHOICES, "layout", "native"]) $(id).addEventListener("change", changed);
  $("search").addEventListener("input", () => { search(); show(); store(false); });
  $("controls").addEventListener("submit", (e) => e.preventDefault());
  $("reset").addEventListener("click", reset);
  function reset() {
    $("search").value = "";
    search();
    view.reset();
    show();
  }

  // --- the address --------------------------------------------------------
  const controls = () => ({
    ...Object.fromEntries([...CHOICES, "layout", "search"].map((id) => [id, $(id).value])), native: $("native").checked ? "1" : "0",
  });

  function store(step) {
    const values = controls();
    for (const id in values) if (values[id] === usual[id]) values[id] = "";
    flameState.write({ ...values, zoom: flameState.pathTo(tree, view.zoomed()) }, step);
  }

  function restore() {
    const state = flameState.read();
    for (const id of [...CHOICES, "layout"]) {
      $(id).value = state.get(id) ?? usual[id];
      if ($(id).selectedIndex < 0) $(id).value = usual[id];
    }
    $("native").checked = (state.get("native") ?? usual.native) === "1";
    $("search").value = state.get("search") || "";
    readPattern();
    rebuild();
    view.show(tree, marks, flameState.find(tree, state.get("zoom")));
    tellMatched();
  }
  window.addEventListener("popstate", restore);

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") {
      reset();
      if (document.activeElement === $("search")) $("canvas").focus();
    } else if (e.key === "/" && document.activeElement !== $("search")) {
      e.preventDefault();
      $("search").focus();
      $("search").select();
    }
  });

  usual = controls();
  restore();

  window.ttmem = view; // for tests and for the console
})();
