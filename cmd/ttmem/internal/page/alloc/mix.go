package alloc

import (
	"slices"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
)

// A Mix counts the buffers of a row by class.
type Mix []mixed

type mixed struct {
	class *name.Class
	count uint64
}

// Add counts buffers of a class.
func (m *Mix) Add(class *name.Class, count uint64) {
	if count == 0 {
		return
	}
	i := slices.IndexFunc(*m, func(one mixed) bool { return one.class == class })
	if i < 0 {
		i = len(*m)
		*m = append(*m, mixed{class: class})
	}
	(*m)[i].count += count
}

// AddAll adds those of another row.
func (m *Mix) AddAll(other Mix) {
	*m = slices.Clone(*m)
	for _, one := range other {
		m.Add(one.class, one.count)
	}
}

// Class is the class of all buffers; nil if they differ, or if it is not known.
func (m Mix) Class() *name.Class {
	if len(m) != 1 {
		return nil
	}
	return m[0].class
}

// Text names the buffers that are no tensors, after the title of a group by something other than the
// class: ", of which 4 kernel binaries". It is "" if there are none.
func (m Mix) Text() string {
	var list []string
	for _, one := range m {
		if one.class.Mention() != "" {
			list = append(list, page.Count(one.count, one.class.Noun))
		}
	}
	switch {
	case list == nil:
		return ""
	case len(list) == len(m):
		return ", " + strings.Join(list, ", ")
	}
	return ", of which " + strings.Join(list, ", ")
}
