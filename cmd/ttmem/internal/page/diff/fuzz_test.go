package diff

import (
	"bytes"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// FuzzBaseline: any file is a baseline or an error, and a baseline is written as it was read.
func FuzzBaseline(f *testing.F) {
	f.Add([]byte(`{"v":1,"kind":"ttmem diff --baseline","left":[{"region":"DRAM","devices":[0],"layout":"interleaved","buffers":1,"bytes":2,"stack":[{"kind":"python","name":"f","file":"/m.py","line":3}]}],"peaks":[]}`))
	f.Add([]byte(`{"v":1,"kind":"ttmem diff --baseline","peaks":[{"region":"CB","layout":"interleaved","static":"circular_buffer"}]}`))
	f.Add([]byte(`{"v":1`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b *Baseline
		var err error
		fuzztest.Bounded(t, len(text), 200, func() { b, err = ReadBaseline(bytes.NewReader(text)) })
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		qt.Assert(t, qt.IsNil(b.Write(&first)))
		again, err := ReadBaseline(bytes.NewReader(first.Bytes()))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(again.Write(&second)))
		qt.Check(t, qt.Equals(second.String(), first.String()))
	})
}
