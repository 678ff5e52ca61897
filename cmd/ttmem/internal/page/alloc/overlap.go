package alloc

import (
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// shownOverlaps is the maximum number of overlaps in a text.
const shownOverlaps = 5

// Overlaps describes memory that several allocators assigned: all such pairs of call sites or, if
// now is true, those on chips where it is so at present. With pids, only the call sites of these
// processes are named.
func Overlaps(s *memory.Snapshot, now bool, pids []int) (texts []string) {
	for i := range s.Overlaps {
		one, selected := s.Overlaps[i].For(func(pid, _ int) bool { return len(pids) == 0 || slices.Contains(pids, pid) })
		if !selected {
			continue
		}
		o := &one
		if now && !slices.ContainsFunc(s.Devices, func(d memory.Device) bool {
			return slices.Contains(o.Devices, d.ID) && overlapsIn(&d, o.Region)
		}) {
			continue
		}
		effect := "each overwrites the other"
		if o.Earlier.PID != o.Later.PID {
			effect += ", unless the processes use this number for different chips"
		}
		text := fmt.Sprintf("%s of %s is assigned twice: %s and %s both have %s of each bank, from %#x on; %s. The memory is counted once",
			page.Clean(o.Region), page.Chips(o.Devices), overlapBuffer(&o.Earlier, &o.Later), overlapBuffer(&o.Later, &o.Earlier), page.Bytes(o.BytesPerBank), o.Address, effect)
		texts = append(texts, text)
	}
	if more := len(texts) - shownOverlaps; more > 0 {
		texts = append(texts[:shownOverlaps], fmt.Sprintf("more memory is assigned twice, by %s of call sites: --json lists it", page.Count(uint64(more), "pair")))
	}
	return texts
}

func overlapsIn(d *memory.Device, region string) bool {
	for r := range event.Region(event.BankedRegions) {
		if r.String() == region {
			return d.Regions.Banked(r).OverlapBytesPerBank > 0
		}
	}
	return false
}

// overlapBuffer describes one of two buffers, with its process if that is another one.
func overlapBuffer(b, other *memory.OverlapBuffer) string {
	if b.Hidden {
		return "a buffer of another process"
	}
	place := page.Clean(name.Of(b.Stack.Frames()).Text(", "))
	if place == "" {
		place = "an unknown call site"
	}
	if b.BeforeAttach {
		place = "allocated before ttmem attached"
	}
	text := fmt.Sprintf("%s (%s", place, page.Bytes(b.SizeBytes))
	if b.PID != other.PID {
		text += fmt.Sprintf(", PID %d", b.PID)
	}
	return text + ")"
}
