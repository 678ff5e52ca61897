package table

import (
	"bufio"
	"reflect"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// row is a call site with buffers of one tensor.
func row(n *alloc.Namer, op string, line int, tensor string, count, bytes uint64, devices ...int) *alloc.Row {
	return &alloc.Row{
		Site: n.Site(pagetest.Stack(op, "forward", line)), PID: 7, Region: event.DRAM, Devices: devices, Owner: memory.Owner{Path: "w", Tensor: tensor},
		Amounts: []memory.Amount{{Count: count, Bytes: bytes}},
	}
}

// shape is a row of shapes.
type shape struct{}

// Columns are those of the list.
func (shape) Columns() Columns { return shapes(nil, nil, 0).Columns }

// shapes is a whole view: what buffers of each shape of a tensor take, as text and as JSON.
func shapes(n *alloc.Namer, list []*alloc.Row, limit int) *List {
	groups := Table{Names: n}
	for _, r := range list {
		groups.AddTo(r, []string{r.Owner.Tensor})
	}
	rows := groups.Rows(false, nil)
	return &List{
		Columns: Columns{
			Key.As("shape"),
			Bytes("bytes", "their size", 0).Shown("bytes", page.SizeColumns, AsBytes(0, page.Bytes)), Share("% ", 6, 0, alloc.Total(rows).Bytes),
			Count("buffers", "number of buffers", 0).Shown("buffers", 10, AsCount(0)),
		},
		Rows: rows, Limit: limit, Head: "shape",
	}
}

func text(t *testing.T, l *List, width int) string {
	t.Helper()
	var b strings.Builder
	out := bufio.NewWriter(&b)
	l.Write(out, page.Layout{Width: width})
	qt.Assert(t, qt.IsNil(out.Flush()))
	return b.String()
}

// TestAListIsADeclaration: its text and its JSON have the same rows and figures, and the text adds up the
// rows that it leaves out.
func TestAListIsADeclaration(t *testing.T) {
	var n alloc.Namer
	list := []*alloc.Row{row(&n, "add", 3, "bf16[32,32]", 1, 2048, 0), row(&n, "mul", 4, "bf16[64,64]", 1, 8192, 0), row(&n, "exp", 5, "bf16[32,32]", 2, 4096, 0), row(&n, "exp", 6, "u8[2]", 1, 64, 0)}
	l := shapes(&n, list, 2)
	qt.Check(t, qt.Equals(text(t, l, 0), ""+
		"      bytes    %    buffers  shape\n"+
		"    8.0 KiB   57%         1  bf16[64,64]\n"+
		"    6.0 KiB   43%         3  bf16[32,32]\n"+
		"       64 B   <1%         1  and 1 more: -n 0 lists all\n"))
	qt.Check(t, qt.Equals(string(document.Append(nil, Objects[shape](l.Columns, l.Rows), nil)),
		`[{"shape":"bf16[64,64]","bytes":8192,"buffers":1},{"shape":"bf16[32,32]","bytes":6144,"buffers":3},{"shape":"u8[2]","bytes":64,"buffers":1}]`))
	fields := document.Fields(reflect.TypeFor[Object[shape]]()) // as docs/schema.json has them
	qt.Check(t, qt.DeepEquals(page.Each(fields, func(f document.Field) string { return f.Key + ": " + f.About }), []string{"shape: the group", "bytes: their size", "buffers: number of buffers"}))
	qt.Check(t, qt.Equals(list[0].Amounts[0].Count, 1)) // the rows that were added stay as they are
}

// TestChipsDivideARow: by chip, each has its part of the bytes, and its own buffers.
func TestChipsDivideARow(t *testing.T) {
	var n alloc.Namer
	groups := Table{Names: &n, By: "chip"}
	groups.Add(row(&n, "add", 3, "", 1, 100, 2, 5))
	groups.Add(row(&n, "add", 3, "", 1, 7, 5))
	rows := groups.Rows(false, nil)
	qt.Assert(t, qt.HasLen(rows, 2))
	qt.Check(t, qt.Equals(rows[0].Text, "chip 5"))
	qt.Check(t, qt.DeepEquals(rows[0].Amounts, []memory.Amount{{Count: 2, Bytes: 57}}))
	qt.Check(t, qt.DeepEquals(rows[1].Amounts, []memory.Amount{{Count: 1, Bytes: 50}}))
	qt.Check(t, qt.DeepEquals(rows[1].Devices, []int{2}))
}

// TestTheSmallCallSitesOfALineShareARow: those with at most a quarter of its bytes. Values keep rows apart.
func TestTheSmallCallSitesOfALineShareARow(t *testing.T) {
	var n alloc.Namer
	groups := Table{Names: &n, By: "stack"}
	for op, bytes := range map[string]uint64{"matmul": 51, "add": 25, "mul": 14, "exp": 10} {
		groups.Add(row(&n, op, 3, "", 1, bytes, 0), "a")
	}
	groups.Add(row(&n, "add", 3, "", 1, 1, 0), "b")
	qt.Check(t, qt.HasLen(groups.Rows(false, nil), 5))
	rows := groups.Rows(true, nil)
	qt.Assert(t, qt.HasLen(rows, 3))
	qt.Check(t, qt.Equals(rows[0].Text, "model.py:3 forward · ttnn.matmul"))
	qt.Check(t, qt.Equals(rows[1].Text, "model.py:3 forward · 3 operations"))
	qt.Check(t, qt.Equals(rows[1].Sites, 3))
	qt.Check(t, qt.Equals(rows[1].Amounts[0].Bytes, 49))
	qt.Check(t, qt.Equals(rows[2].Text, "model.py:3 forward · ttnn.add"))
}

// TestColumnsThatHaveNoRoomOrNoValueAreLeftOut of the text.
func TestColumnsThatHaveNoRoomOrNoValueAreLeftOut(t *testing.T) {
	cell := func(text string) func(*alloc.Row) string { return func(*alloc.Row) string { return text } }
	l := &List{
		Columns: Columns{Text("a", 6, cell("1")), Text("spare", 20, cell("2")).IfRoom(), Text("none", 6, cell("")).IfAny(func(*alloc.Row) bool { return false })},
		Rows:    []*alloc.Row{Named("group")}, Head: "name",
	}
	qt.Check(t, qt.Equals(text(t, l, 80), "     a               spare  name\n     1                   2  group\n"))
	qt.Check(t, qt.Equals(text(t, l, 50), "     a  name\n     1  group\n"))
}
