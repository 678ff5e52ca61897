package web

import (
	"slices"
)

// A use is the bytes in use in a region of a chip, the part of the program that runs, and its operation:
// an index in runs.operations.
type use struct {
	bytes, static uint64
	by            uint32
}

// A line is the use of a region over the rows, of chips on which it was always the same.
type line struct {
	devices       []int
	row, by       []uint32
	bytes, static []uint64

	// For the chips that change in the row now: their number, and whether their use is the same.
	now     uint32
	changed int
	alike   bool
	use     use
}

// lines are those of one region. Chips of a mesh mostly share one.
type lines struct {
	list []*line
	of   map[int]*line
	// last is the row in which a chip changed last, and use its use since then.
	last map[int]uint32
	use  map[int]use
}

// chips returns the known chips.
func (l *lines) chips() (ids []int) {
	for _, one := range l.list {
		ids = append(ids, one.devices...)
	}
	return ids
}

// follow sets the use of chips from a row on.
func (l *lines) follow(row uint32, devices []int, level func(device int) use) {
	var touched []*line
	for _, id := range devices {
		one := l.lineOf(id)
		if l.last[id] == row+1 {
			continue // named twice
		}
		l.last[id] = row + 1
		if one.now != row+1 {
			one.now, one.changed, one.alike = row+1, 0, true
			touched = append(touched, one)
		}
		now := level(id)
		if one.changed++; one.changed == 1 {
			one.use = now
		}
		one.alike = one.alike && one.use == now
		l.use[id] = now
	}
	for _, one := range touched {
		switch {
		case one.alike && one.use == one.end():
		case one.alike && one.changed == len(one.devices):
			one.add(row, one.use)
		default:
			l.split(row, one)
		}
	}
}

// lineOf returns the line of a chip. A new chip has used nothing before.
func (l *lines) lineOf(id int) *line {
	if one := l.of[id]; one != nil {
		return one
	}
	if l.of == nil {
		l.of, l.last, l.use = make(map[int]*line), make(map[int]uint32), make(map[int]use)
	}
	i := slices.IndexFunc(l.list, func(one *line) bool { return len(one.row) == 0 })
	if i < 0 {
		i = len(l.list)
		l.list = append(l.list, &line{})
	}
	l.list[i].devices = append(l.list[i].devices, id)
	l.of[id] = l.list[i]
	return l.list[i]
}

// split makes a line of its own for each use that the chips of a line have now.
func (l *lines) split(row uint32, from *line) {
	parts := make(map[use]*line)
	before, all := *from, from.devices
	from.devices = nil
	for _, id := range all {
		one := parts[l.use[id]]
		if one == nil {
			one = from
			if len(parts) > 0 {
				one = &line{row: slices.Clone(before.row), by: slices.Clone(before.by), bytes: slices.Clone(before.bytes), static: slices.Clone(before.static)}
				l.list = append(l.list, one)
			}
			parts[l.use[id]] = one
		}
		one.devices = append(one.devices, id)
		l.of[id] = one
	}
	for now, one := range parts {
		if now != before.end() {
			one.add(row, now)
		}
	}
}

func (l *line) add(row uint32, now use) {
	l.row, l.by = append(l.row, row), append(l.by, now.by)
	l.bytes, l.static = append(l.bytes, now.bytes), append(l.static, now.static)
}

// end returns the latest use.
func (l *line) end() use {
	n := len(l.row)
	if n == 0 {
		return use{}
	}
	return use{l.bytes[n-1], l.static[n-1], l.by[n-1]}
}
