"""Prints as JSON what a trace has, read by the protos of PyPI's perfetto as Trace Processor does."""
import json, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
tracks, interned, events, profiles, clocks = {}, {}, [], [], {}
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    for field, values in packet.interned_data.ListFields():
        for value in values:
            assert (field.name, value.iid) not in interned, (field.name, value.iid)
            interned[field.name, value.iid] = value
    if packet.HasField("clock_snapshot"):
        assert packet.sequence_flags == 1 and packet.trace_packet_defaults.timestamp_clock_id == 3
        clocks = {str(c.clock_id): c.timestamp for c in packet.clock_snapshot.clocks}
    else:
        assert packet.sequence_flags == 2
    if packet.HasField("track_descriptor"):
        assert packet.track_descriptor.uuid not in tracks
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
    elif packet.HasField("track_event"):
        events.append((packet.timestamp, packet.track_event))
    elif packet.HasField("profile_packet"):
        assert packet.profile_packet.index == len(profiles)
        profiles.append(packet.profile_packet)


def text(kind, iid):
    value = interned[kind, iid]
    return value.name if kind in ("event_names", "debug_annotation_names") else getattr(value, "str").decode()


def stack(iid):
    frames = [interned["frames", i] for i in interned["callstacks", iid].frame_ids]
    for frame in frames:
        mapping = interned["mappings", frame.mapping_id]
        assert text("mapping_paths", mapping.path_string_ids[0])
        assert not frame.source_path_iid or text("source_paths", frame.source_path_iid)
    return [text("function_names", f.function_name_id) for f in frames]


def path(uuid):
    track = tracks[uuid]
    return (path(track.parent_uuid) + "/" if track.parent_uuid else "") + (track.process and track.process.pid and str(track.process.pid) or track.name)


counters, slices, instants, running = {}, [], [], {}
for time, e in sorted(events, key=lambda one: one[0]):  # stable, as Trace Processor's sorter is
    if e.type == TrackEvent.TYPE_COUNTER:
        assert tracks[e.track_uuid].counter.unit == 3
        counters.setdefault(path(e.track_uuid), []).append([time, e.counter_value])
    elif e.type == TrackEvent.TYPE_SLICE_END:
        running.pop(e.track_uuid)["end"] = time
    else:
        one = {"track": path(e.track_uuid), "time": time, "name": text("event_names", e.name_iid), "weight": e.callstack_weight}
        one["stack"] = stack(e.callstack_iid) if e.callstack_iid else []
        for a in e.debug_annotations:
            one[text("debug_annotation_names", a.name_iid)] = getattr(a, a.WhichOneof("value"))
        if e.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert e.track_uuid not in running, "slices of a track overlap"
            running[e.track_uuid] = one
            slices.append(one)
        else:
            instants.append(one)

totals, sums = {}, []
for packet in profiles:
    for process in packet.process_dumps:
        for s in process.samples:
            before = totals.get((process.pid, s.callstack_id), (0, 0))
            assert s.self_allocated >= before[0] and s.self_freed >= before[1]
            totals[process.pid, s.callstack_id] = s.self_allocated, s.self_freed
    live = {}
    for (pid, iid), (allocated, freed) in totals.items():
        key = "%d %s" % (pid, stack(iid)[0])
        live[key] = live.get(key, 0) + allocated - freed
    sums.append({"time": packet.process_dumps[0].timestamp if packet.process_dumps else 0, "live": {k: n for k, n in live.items() if n}})

json.dump({"counters": counters, "slices": slices, "instants": instants, "profiles": sums, "clocks": clocks}, sys.stdout)
