package top

import (
	"slices"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page/alloc"
)

// foldStacks replaces the rows of stacks with the same name by one for each region, if there are
// many: the line of a helper that allocates has many callers.
func foldStacks(rows map[string]*row) {
	type look struct {
		region string
		name   name.Name
	}
	groups := make(map[look][]*row)
	for _, r := range rows {
		if r.site.Name.Call.Line > 0 {
			of := look{r.region(), r.site.Name}
			groups[of] = append(groups[of], r)
		}
	}
	for of, list := range groups {
		if len(list) <= alloc.OwnRows {
			continue
		}
		all := &row{
			key: of.region + " " + of.name.Call.File + " " + of.name.String(), title: of.name.String(),
			site: &site{Site: &alloc.Site{Name: of.name}, caller: list[0].site.caller}, folded: true,
		}
		var callers []name.Call
		for _, r := range list {
			delete(rows, r.key)
			all.merge(r)
			callers = with(callers, r.site.caller)
		}
		all.callers, all.twin = len(callers), len(callers) > 1
		rows[all.key] = all
	}
}

// merge adds the memory of another row.
func (r *row) merge(other *row) {
	r.bytes, r.count, r.statics = r.bytes+other.bytes, r.count+other.count, r.statics+other.statics
	r.grown, r.grownStatics, r.rate = r.grown+other.grown, r.grownStatics+other.grownStatics, r.rate+other.rate
	if other.since > 0 && (r.since == 0 || other.since < r.since) {
		r.since = other.since
	}
	r.sites = append(r.sites, other.sites...)
	r.chips, r.devices = union(r.chips, other.chips), union(r.devices, other.devices)
	r.pids, r.regions = union(r.pids, other.pids), union(r.regions, other.regions)
}

// union returns the values of both lists, each once.
func union[T comparable](list, more []T) []T {
	for _, one := range more {
		list = with(list, one)
	}
	return list
}

// unfold makes the filter select the stacks of a folded row.
func (f *filter) unfold(r *row) {
	f.in, f.inBy = r.title, byStack
	if len(r.regions) == 1 {
		f.region = 1 + slices.Index(alloc.Regions, r.regions[0])
	}
}
