// Runs the viewer's own code, VIEWER, on a snapshot and prints what it makes of each device.
'use strict';
const fs = require('fs');
const [viewer, file] = process.argv.slice(2);

// What draws is replaced: only figures are needed.
const nothing = new Proxy(function () {}, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => 0 : nothing),
  apply: () => nothing,
});
const d3 = nothing, axisLeft = nothing, scaleLinear = nothing, zoom = nothing, zoomIdentity = nothing, brushX = nothing;
const source = fs.readFileSync(viewer, 'utf8').replace(/^import .*$/gm, '').replace(/^export /gm, '');
const {unpickle, annotate_snapshot, process_alloc_data, MemoryView, formatEvent} = eval(
  source + '\n;({unpickle, annotate_snapshot, process_alloc_data, MemoryView, formatEvent})');

const bytes = fs.readFileSync(file);
const snapshot = unpickle(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
annotate_snapshot(snapshot);
const devices = snapshot.ttmem_devices.map((name, device) => {
  const events = snapshot.device_traces[device];
  const data = process_alloc_data(snapshot, device, false, 15000);
  const view = MemoryView(nothing, nothing, snapshot, device);
  return {
    name,
    peak: Array.from(data.max_at_time).reduce((x, y) => Math.max(x, y), 0),
    context: data.elements_length ? data.context_for_id(0) : '',
    ooms: events.filter(e => e.action === 'oom').map(e => formatEvent(e)),
    // what the map of the addresses shows after each event
    maps: events.map((_, i) => view.draw(i)),
    segments: snapshot.segments.filter(s => s.device === device).map(s => ({
      address: s.address, size: s.total_size,
      blocks: s.blocks.map(b => [b.addr, b.size, b.state]),
    })),
  };
});
fs.writeSync(1, JSON.stringify(devices));
