package past

import (
	"math/rand/v2"
	"testing"

	"ttmem/aggregate/memory"
)

// BenchmarkTrim trims the largest Past, of many users, whose buffers ended in no order.
func BenchmarkTrim(b *testing.B) {
	const users = 64
	for b.Loop() {
		b.StopTimer()
		var p Past
		dice := rand.New(rand.NewPCG(1, 1))
		for i := range 2 * maxPast {
			site, last := testSite{i % users, i}, 1000+uint64(dice.IntN(100))
			p.add(&pastBuffers{
				life{site: site, after: last - 1, last: last},
				Buffers{Site: site, Amount: memory.Amount{Count: 1, Bytes: uint64(dice.IntN(1 << 20))}},
			})
		}
		b.StartTimer()
		p.trim()
	}
}
