"use strict";
// Where the page's data comes from. load returns the head (see head in write.go) and the columns of
// numbers, by their names. A page that is served can ask a server for both instead.
const recordingSource = (() => {
  async function unpack(id) {
    const element = document.getElementById(id), packed = atob(element.textContent.trim());
    element.remove(); // it may be large
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }

  // decode reads the columns that columns.go wrote.
  function decode(buffer, list) {
    const columns = {};
    let at = 0;
    const half = (count) => { at += 4 * count; return new Uint32Array(buffer, at - 4 * count, count); };
    for (const { name, count, wide, delta } of list) {
      let values = half(count);
      if (wide) {
        const low = values, high = half(count);
        values = new Float64Array(count);
        for (let i = 0, before = 0; i < count; i++) {
          if (delta) before = values[i] = before + (high[i] | 0) * 4294967296 + low[i];
          else values[i] = high[i] * 4294967296 + low[i];
        }
      } else if (delta) {
        for (let i = 1; i < count; i++) values[i] += values[i - 1];
      }
      columns[name] = values;
    }
    return columns;
  }

  async function load() {
    const [head, buffer] = await Promise.all([unpack("head").then((r) => r.json()), unpack("columns").then((r) => r.arrayBuffer())]);
    return { head, columns: decode(buffer, head.columns) };
  }

  return { load };
})();
