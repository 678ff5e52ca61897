package heap

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
)

func TestAllocatedPerBank(t *testing.T) {
	b := Bank{Banks: 12, AlignmentBytes: 32}
	for name, c := range map[string]struct {
		size, page uint64
		request    bpf.KernelShardRequest
		banks      uint32
		perBank    uint64
	}{
		"a page more than the banks": {13 * 2048, 2048, bpf.KernelShardRequest{}, 12, 2 * 2048},
		"pages are rounded up":       {100, 100, bpf.KernelShardRequest{}, 12, 128},
		"256 pages":                  {524288, 2048, bpf.KernelShardRequest{}, 12, 45056},
		"shards, with their padding": {1, 1, bpf.KernelShardRequest{SizeBytes: 4 * 4096, PageSizeBytes: 1024, Shards: 4}, 4, 4096},
		"smaller than a page":        {10, 2048, bpf.KernelShardRequest{}, 12, 0},
		"no page size":               {10, 0, bpf.KernelShardRequest{}, 12, 0},
	} {
		t.Run(name, func(t *testing.T) {
			banks, perBank := b.AllocatedPerBank(c.size, c.page, c.request)
			qt.Check(t, qt.Equals(banks, c.banks))
			qt.Check(t, qt.Equals(perBank, c.perBank))
		})
	}
}

// The requested size is not rounded.
func TestAllocatedPerBankRoundsToBlocks(t *testing.T) {
	b := Bank{Banks: 64, AlignmentBytes: 16, BlockAlignmentBytes: 32}
	_, perBank := b.AllocatedPerBank(65*48, 48, bpf.KernelShardRequest{})
	qt.Check(t, qt.Equals(perBank, 96))
	_, perBank = b.AllocatedPerBank(16, 16, bpf.KernelShardRequest{})
	qt.Check(t, qt.Equals(perBank, 32))
	_, perBank = b.RequestedPerBank(16, 16, bpf.KernelShardRequest{})
	qt.Check(t, qt.Equals(perBank, 16))
}
