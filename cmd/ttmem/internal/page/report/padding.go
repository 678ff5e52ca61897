package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// padded is the padding of tiles at the peak of a region, on the chip where it is the most. Only tensors
// whose shapes are known count: those with an owner.
type padded struct {
	device int
	region event.Region
	// bytes are those of the region's buffers, of which the padding of known ones is a part.
	bytes, known, padding uint64
	// sites are the call sites, the most padding first.
	sites []*alloc.Row
}

// The measures of a call site with padding: the padding, the bytes of the values, and those with the padding.
const (
	paddingBytes = iota
	valueBytes
	sizeBytes
)

// paddedIn returns the padding in each region, most first.
func (r *report) paddedIn() (list []padded) {
	for i := range r.peaks {
		p := &r.peaks[i]
		one := padded{device: p.Device, region: p.Region}
		sites := newSources()
		for _, part := range r.buffers[i] {
			one.bytes += part.Amounts[0].Bytes
			if r.PID == 0 || part.PID == r.PID {
				one.add(sites, *part)
			}
		}
		if one.padding == 0 {
			continue
		}
		one.sites = sites.Rows(true, nil)
		at := slices.IndexFunc(list, func(o padded) bool { return o.region == one.region })
		switch {
		case at < 0:
			list = append(list, one)
		case one.padding > list[at].padding:
			list[at] = one
		}
	}
	slices.SortStableFunc(list, func(a, b padded) int { return cmp.Compare(b.padding, a.padding) })
	return list
}

// add adds the buffers of a row, which one owner holds.
func (p *padded) add(sites *sources, row alloc.Row) {
	sums := make([]memory.Amount, 3)
	for _, h := range row.Holders {
		for _, b := range h.Buffers {
			values, bytes := b.TensorBytes(), b.AllocatedBytes()
			if values == 0 {
				continue
			}
			if p.region == event.L1 { // whose bytes are per core
				bytes = b.BytesPerBank
			}
			p.known += bytes
			sums[paddingBytes].Add(memory.Amount{Count: 1, Bytes: b.PaddingIn(bytes)})
			sums[valueBytes].Add(memory.Amount{Count: 1, Bytes: values})
			sums[sizeBytes].Add(memory.Amount{Count: 1, Bytes: b.SizeBytes})
		}
	}
	if sums[paddingBytes].Bytes > 0 {
		p.padding += sums[paddingBytes].Bytes
		row.Amounts = sums
		sites.Add(&row)
	}
}

// tilePadding names the regions whose buffers are padding to more than a quarter, each with the call site
// that has the most.
func (r *report) tilePadding() {
	for _, p := range r.padded {
		if 4*p.padding <= p.bytes {
			continue
		}
		most := p.sites[0]
		text := fmt.Sprintf("Padding of tiles is %s of the buffers in %s; the most at %s: %s of data takes %s, %s",
			page.Percent(p.padding, p.bytes), p.region, cmp.Or(page.Clean(most.Name.Call.String()), most.Text),
			page.Bytes(most.Amounts[valueBytes].Bytes), page.Bytes(most.Amounts[sizeBytes].Bytes), page.Factor(most.Amounts[sizeBytes].Bytes, most.Amounts[valueBytes].Bytes))
		r.sentence(page.Yellow, text)
	}
}

// paddedRegion is the padding of tiles at the peak of a region, on the chip where it is the most. Only tensors
// whose owner is known have a known shape. The bytes of L1 are per core.
type paddedRegion struct {
	Device int    `json:"device"`
	Region string `json:"region" schema:"region"`
	// Bytes are those of all buffers, KnownBytes those of tensors whose shapes are known, and PaddingBytes
	// the part of these that is padding.
	Bytes        uint64 `json:"bytes"`
	KnownBytes   uint64 `json:"known_bytes"`
	PaddingBytes uint64 `json:"padding_bytes"`
	// Sites are the call sites with the most padding.
	Sites []table.Object[paddedSite] `json:"sites"`
}

// paddedSite is a call site of tensors with padding.
//
//schema:padded_site
type paddedSite struct{}

// Columns are those of the list.
func (paddedSite) Columns() table.Columns {
	return append(table.Columns{
		table.Bytes("padding_bytes", "the part of the region's bytes that is padding of its tensors", paddingBytes),
		table.Bytes("tensor_bytes", "size of its tensors' values on each chip", valueBytes),
		table.Bytes("size_bytes", "size of the values with the padding", sizeBytes),
		table.Count("count", "number of buffers", sizeBytes),
	}, naming...)
}

func (p *padded) document() paddedRegion {
	sites, _ := page.First(p.sites, shownSites)
	return paddedRegion{p.device, p.region.String(), p.bytes, p.known, p.padding, table.Objects[paddedSite](paddedSite{}.Columns(), sites)}
}
