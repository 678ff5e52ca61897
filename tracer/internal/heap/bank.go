package heap

import "ttmem/bpf"

// Bank describes the banks of a BankManager.
type Bank bpf.KernelBankInfo

// BankOf returns the banks of a record. The allocator of a sub-device has no DRAM: its size there is what
// is left of 0 bytes behind the part that is reserved.
func BankOf(info bpf.KernelBankInfo) Bank {
	if int64(info.BytesPerBank) < 0 {
		return Bank{}
	}
	return Bank(info)
}

// Shrink makes the banks lack this many bytes at their beginning, instead of ShrunkBytes.
func (b *Bank) Shrink(bytes uint64) {
	if b.Base != 0 {
		b.Base += bytes - b.ShrunkBytes
	}
	b.BytesPerBank -= bytes - b.ShrunkBytes
	b.ShrunkBytes = bytes
}

// AllocatedPerBank is the memory that a bank allocates: what BankManager::allocate_buffer
// requests, rounded up to blocks of the free list.
func (b *Bank) AllocatedPerBank(size, pageSize uint64, r bpf.KernelShardRequest) (banks uint32, bytesPerBank uint64) {
	banks, bytesPerBank = b.RequestedPerBank(size, pageSize, r)
	if align := b.BlockAlignmentBytes; align != 0 {
		bytesPerBank = (bytesPerBank + align - 1) / align * align
	}
	return banks, bytesPerBank
}

// RequestedPerBank is the memory that BankManager::allocate_buffer requests of each bank:
// the pages of an interleaved buffer are spread over all banks, those of a sharded one over
// as many as there are shards.
func (b *Bank) RequestedPerBank(size, pageSize uint64, r bpf.KernelShardRequest) (banks uint32, bytesPerBank uint64) {
	banks = b.Banks
	if r.Shards != 0 {
		banks, size, pageSize = uint32(r.Shards), r.SizeBytes, r.PageSizeBytes
	}
	if banks == 0 || pageSize == 0 || b.AlignmentBytes == 0 {
		return banks, 0
	}
	align := uint64(b.AlignmentBytes)
	page := (pageSize + align - 1) / align * align
	pages := size / pageSize
	return banks, (pages + uint64(banks) - 1) / uint64(banks) * page
}
