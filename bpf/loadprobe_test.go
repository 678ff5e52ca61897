package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

func TestLoad(t *testing.T) {
	_ = rlimit.RemoveMemlock()
	s, err := LoadKernel()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollectionWithOptions(s, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: 4}})
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		for _, l := range ve.Log[max(0, len(ve.Log)-60):] {
			t.Log(l)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for n, p := range c.Programs {
		t.Log(n, p.VerifierLog)
	}
}
