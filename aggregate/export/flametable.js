"use strict";
// The table of functions of flamegraph.html.
const flameTable = (() => {
  const { formatBytes, formatCount, formatPercent } = flameText;
  const SHOWN = 500; // rows
  const COLUMNS = [
    ["self", "Self", (a, b) => b.self - a.self || b.total - a.total],
    ["total", "Total", (a, b) => b.total - a.total || b.self - a.self],
    ["name", "Function", (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)],
  ];
  let sorted = "self";

  function element(tag, text, name) {
    const e = document.createElement(tag);
    e.textContent = text.length > 2000 ? text.slice(0, 2000) + "…" : text;
    if (name) e.className = name;
    return e;
  }

  // show writes the functions of a model's tree, or those that the pattern matches. search is
  // called with the function that the user selects.
  function show(at, model, tree, unit, pattern, search) {
    const again = () => show(at, model, tree, unit, pattern, search);
    const format = unit === "bytes" ? formatBytes : formatCount, all = tree.value[0];
    const list = model.functions(tree).filter((f) => !pattern || pattern.test([f.name, placeOf(f), f.module].join(" ")));
    list.sort(COLUMNS.find(([id]) => id === sorted)[2]);
    const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    for (const [id, title] of COLUMNS) {
      const cell = element("th", ""), button = element("button", title);
      cell.scope = "col";
      if (id === sorted) cell.ariaSort = id === "name" ? "ascending" : "descending";
      button.type = "button";
      button.addEventListener("click", () => { sorted = id; again(); });
      cell.append(button);
      head.append(cell);
    }
    for (const f of list.slice(0, SHOWN)) {
      const row = body.insertRow(), name = row.insertCell(), button = element("button", f.name || "[unknown]");
      for (const value of [f.total, f.self]) {
        row.insertBefore(element("td", `${format(value)}  ${formatPercent(value, all)}`, "value"), row.firstChild);
      }
      if (pattern) row.className = "found";
      button.type = "button";
      button.title = "search in the graph";
      button.addEventListener("click", () => search(f));
      name.append(button, element("span", [placeOf(f), f.module].filter(Boolean).join(" · ")));
    }
    at.replaceChildren(table);
    if (!list.length) at.append(element("p", "Nothing here."));
    if (list.length > SHOWN) at.append(element("p", `and ${(list.length - SHOWN).toLocaleString("en-US")} more`));
  }

  const placeOf = (f) => (f.file && f.line > 0 ? f.file + ":" + f.line : f.file);

  return { show };
})();
