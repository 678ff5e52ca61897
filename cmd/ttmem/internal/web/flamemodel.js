"use strict";
// The data of a flame graph (see stackData in stacks.go), and the tree of what is chosen of it. A sample has
// the number of its group, the nodes of its stack, folded and whole, and count and bytes of each of the amounts.
function flameModel(data, amounts) {
  const NATIVE = 0, PYTHON = 1, OTHER = 2;
  const FOLDED = 1, WHOLE = 2, offsetOf = (amount) => 3 + 2 * amounts.indexOf(amount);
  const SAMPLE = 3 + 2 * amounts.length, FRAME = 6, NODE = 3;

  // --- the data -----------------------------------------------------------
  const nodeCount = data.nodes.length / NODE + 1;
  const parentOf = new Int32Array(nodeCount), frameOf = new Int32Array(nodeCount), lineOf = new Int32Array(nodeCount);
  for (let i = 1, at = 0; i < nodeCount; i++) {
    parentOf[i] = i - data.nodes[at++];
    frameOf[i] = data.nodes[at++];
    lineOf[i] = data.nodes[at++];
  }
  data.nodes = null;
  const base = (file) => file.slice(file.lastIndexOf("/") + 1);
  // shorter lists a function's name with fewer and fewer of its namespaces.
  function shorter(f) {
    const list = [f.name], separator = f.kind === PYTHON ? "." : f.kind === NATIVE ? "::" : "\n";
    const end = f.name.search(/[<(]/), limit = end < 0 ? f.name.length : end;
    for (let at; list.length < 8 && (at = f.name.indexOf(separator, f.name.length - list.at(-1).length)) >= 0 && at < limit;) {
      list.push(f.name.slice(at + separator.length));
    }
    return list.filter((name) => name && !name.startsWith("{"));
  }
  const frames = [];
  const functionOf = new Map(); // a function is a frame without its line
  for (let at = 0; at < data.frames.length; at += FRAME) {
    const [kind, name, file, module, line, inlined] = data.frames.slice(at, at + FRAME);
    const f = { kind, name: data.strings[name], file: data.strings[file], module: data.strings[module], line, inlined };
    f.place = f.file && f.line > 0 ? f.file + ":" + f.line : f.file;
    f.text = kind === PYTHON && f.file ? `${f.name} (${base(f.place)})` : f.name;
    f.names = shorter(f);
    const key = [kind, name, file, module].join(" ");
    if (!functionOf.has(key)) functionOf.set(key, functionOf.size);
    f.function = functionOf.get(key);
    frames.push(f);
  }
  const groups = data.head.groups.map(([pid, , region]) => ({ pid, region, from: 0, to: 0 }));
  for (let at = 0; at < data.samples.length; at += SAMPLE) {
    const g = groups[data.samples[at]];
    if (!g.to) g.from = at;
    g.to = at + SAMPLE;
  }
  const processes = new Map(data.head.processes.map(([pid, name, command, host]) => [pid, { name, command, host: host && `host memory ${host}` }]));
  const processName = (pid) => `${(processes.get(pid) || {}).name || "[unknown]"} (${pid})`;

  // A shape is a tree of frames, from the outermost or, if it is inverted, from the
  // innermost one. of is the end of the stack of a node of the data.
  const shapes = new Map();
  function shapeOf({ all, inverted }) {
    const key = `${all} ${inverted}`;
    if (!shapes.has(key)) shapes.set(key, newShape(all ? WHOLE : FOLDED, inverted));
    return shapes.get(key);
  }

  function newShape(field, inverted) {
    const s = { field, parent: [-1], frame: [-1], line: [0], of: new Int32Array(nodeCount) };
    const index = new Map();
    const child = (parent, frame, line) => {
      const key = parent * frames.length + frame;
      let at = index.get(key);
      if (at === undefined) {
        at = s.parent.length;
        index.set(key, at);
        s.parent.push(parent); s.frame.push(frame); s.line.push(line);
      } else if (s.line[at] !== line) s.line[at] = -1; // several
      return at;
    };
    for (let at = field; at < data.samples.length; at += SAMPLE) {
      const end = data.samples[at], path = [];
      if (s.of[end]) continue;
      for (let i = end; i > 0; i = parentOf[i]) path.push(i);
      if (!inverted) path.reverse();
      for (const i of path) s.of[end] = child(s.of[end], frameOf[i], lineOf[i]);
    }
    return s;
  }

  // --- the tree that is shown ---------------------------------------------
  // build makes the tree of what is chosen: one region, because bytes of different ones are not added up.
  // Parents come before their children; 0 is the root, with the title. node is the index in the shape; value
  // is bytes or count.
  function build({ amount, unit, process, region, title, ...choice }) {
    const offset = offsetOf(amount), shape = shapeOf(choice), size = shape.parent.length;
    const bytes = new Float64Array(size), counts = new Float64Array(size), shown = new Int32Array(size);
    for (const g of groups) {
      if ((process && String(g.pid) !== process) || g.region !== region) continue;
      for (let at = g.from; at < g.to; at += SAMPLE) {
        const n = shape.of[data.samples[at + shape.field]];
        counts[n] += data.samples[at + offset];
        bytes[n] += data.samples[at + offset + 1];
      }
    }
    for (let i = size - 1; i > 0; i--) {
      bytes[shape.parent[i]] += bytes[i];
      counts[shape.parent[i]] += counts[i];
    }
    const t = { shape, title, inverted: choice.inverted, parent: [-1], node: [0], bytes: [bytes[0]], count: [counts[0]] };
    const value = unit === "bytes" ? bytes : counts;
    for (let i = 1; i < size; i++) {
      if (!(value[i] > 0)) continue;
      shown[i] = t.parent.push(shown[shape.parent[i]]) - 1;
      t.node.push(i); t.bytes.push(bytes[i]); t.count.push(counts[i]);
    }
    t.value = unit === "bytes" ? t.bytes : t.count;
    sortChildren(t);
    return t;
  }

  // sortChildren lists the children of all nodes one after the other, each
  // node's widest first: what is too narrow to be drawn is then at the end.
  function sortChildren(t) {
    const n = t.parent.length;
    t.first = new Int32Array(n + 1);
    for (let i = 1; i < n; i++) t.first[t.parent[i] + 1]++;
    for (let i = 0; i < n; i++) t.first[i + 1] += t.first[i];
    const next = t.first.slice();
    t.children = new Int32Array(Math.max(0, n - 1));
    t.depth = new Int32Array(n);
    for (let i = 1; i < n; i++) {
      t.children[next[t.parent[i]]++] = i;
      t.depth[i] = t.depth[t.parent[i]] + 1;
    }
    for (let i = 0; i < n; i++) {
      if (t.first[i + 1] - t.first[i] > 1) {
        t.children.subarray(t.first[i], t.first[i + 1]).sort((a, b) => t.value[b] - t.value[a] || a - b);
      }
    }
  }

  const frame = (tree, id) => (tree.node[id] ? frames[tree.shape.frame[tree.node[id]]] : null);
  const line = (tree, id) => tree.shape.line[tree.node[id]];

  const texts = frames.map((f) => f.name + " " + f.place + " " + f.module);

  // mark tells of each node whether the pattern matches it, and the value of
  // what matches in it, each part once; any: whether it matches any frame, shown or not.
  function mark(tree, pattern) {
    const matches = texts.map((text) => pattern.test(text));
    const n = tree.parent.length, found = new Uint8Array(n), below = new Float64Array(n);
    for (let i = n - 1; i > 0; i--) {
      found[i] = matches[tree.shape.frame[tree.node[i]]];
      if (found[i]) below[i] = tree.value[i];
      below[tree.parent[i]] += below[i];
    }
    return { found, below, any: matches.some(Boolean) };
  }

  // found says how much of what is shown was found.
  function found(tree, marks, zoomed, format) {
    // within something that matches, all does
    let all = false;
    for (let i = zoomed; i >= 0; i = tree.parent[i]) all ||= Boolean(marks.found[i]);
    const sum = all ? tree.value[zoomed] : marks.below[zoomed];
    if (sum === 0 && marks.any && tree.shape.field === FOLDED) return "not found in the shown frames";
    return `${flameText.formatPercent(sum, tree.value[zoomed])} found: ${format(sum)}`;
  }

  // functions lists those of a tree that is not inverted: what they allocated
  // themselves, and in total with what they called, each part once.
  function functions(tree) {
    const list = [], open = new Int32Array(functionOf.size), todo = [0];
    while (todo.length) {
      const id = todo.pop();
      if (id < 0) { open[frame(tree, ~id).function]--; continue; }
      const f = frame(tree, id);
      let self = tree.value[id];
      if (f) todo.push(~id);
      for (let at = tree.first[id]; at < tree.first[id + 1]; at++) {
        self -= tree.value[tree.children[at]];
        todo.push(tree.children[at]);
      }
      if (!f) continue;
      const one = (list[f.function] ||= { name: f.name, file: f.file, module: f.module, line: f.line, self: 0, total: 0 });
      if (one.line !== f.line) one.line = 0;
      one.self += self;
      if (open[f.function]++ === 0) one.total += tree.value[id];
    }
    return list.filter(Boolean);
  }

  return {
    NATIVE, PYTHON, OTHER, SAMPLE, offsetOf, frames, processes, processName,
    build, mark, found, functions, frame, line,
  };
}
