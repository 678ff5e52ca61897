package layout

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
)

// truth is an entry of testdata/layouts.json: measured by disassembly, and confirmed on
// running programs.
type truth struct {
	BuildID string            `json:"build_id"`
	Fields  map[string]string `json:"fields"`
	Library string            `json:"library"`
	Mesh    string            `json:"mesh_device_ids"`
}

func truths(t testing.TB) map[string]truth {
	t.Helper()
	b, err := os.ReadFile("testdata/layouts.json")
	qt.Assert(t, qt.IsNil(err))
	var list map[string]truth
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &list)))
	return list
}

// few are the releases that are checked without -long: the first and the last, one with
// frame pointers, and those at which layouts changed.
var few = []string{"0.60.1", "0.64.5", "0.68.0", "0.72.0", "0.76.0", "0.81.1"}

// library is the path of a release's library.
func library(t testing.TB, release string) string {
	t.Helper()
	path, err := rig.Library(context.Background(), release)
	qt.Assert(t, qt.IsNil(err))
	return path
}

// chainOf parses the truth's `arg0+0x10+0x40`.
func chainOf(t testing.TB, s string) Chain {
	t.Helper()
	var c Chain
	for _, part := range strings.Split(s, "+")[1:] {
		n, err := strconv.ParseInt(part, 0, 32)
		qt.Assert(t, qt.IsNil(err))
		c = append(c, int32(n))
	}
	return c
}

// expected are the fields in the truth, under the names used here.
func expected(t testing.TB, tr truth) map[string]Chain {
	fields := map[string]Chain{}
	pageSize := chainOf(t, tr.Fields["page_size_"])
	impl := pageSize[:len(pageSize)-1]
	for name, s := range tr.Fields {
		switch name {
		case "id slot", "x86asm full decode", "MeshDevice.mesh_id_", "MeshDeviceImpl.mesh_id_":
		case "hooked_allocation_(rel impl)":
			fields["hooked_allocation_"] = slices.Concat(impl, chainOf(t, s))
		case "Program->runtime_id":
			c := chainOf(t, s)
			fields["Program.impl"], fields["ProgramImpl.runtime_id"] = c[:1], c[1:]
		default:
			fields[name] = chainOf(t, s)
		}
	}
	return fields
}

var meshText = regexp.MustCompile(`\+(0x[0-9a-f]+) .*stride (0x[0-9a-f]+|\d+)`)

// absent are the functions to probe that a release does not have.
func absent(release string) []string {
	var names []string
	if before(release, 0, 70) {
		names = append(names, "cb_deallocate")
	}
	if before(release, 0, 62) {
		names = append(names, "buffer_write", "buffer_read")
	}
	if before(release, 0, 63) {
		names = append(names, "MeshBuffer.buffers") // of other elements
	}
	if before(release, 0, 67) {
		names = append(names, "dfb_invalidate", "program_dfbs", "validate_dfb")
	}
	if before(release, 0, 75) {
		names = append(names, "program_scratchpads")
	}
	return names
}

func before(release string, major, minor int) bool {
	var a, b, c int
	fmt.Sscanf(release, "%d.%d.%d", &a, &b, &c)
	return a < major || a == major && b < minor
}

func TestReleases(t *testing.T) {
	checked := truths(t)
	if !*tracetest.Long {
		t.Logf("checking %v of %d releases; -long checks all", few, len(checked))
		maps.DeleteFunc(checked, func(release string, _ truth) bool { return !slices.Contains(few, release) })
	}
	for release, tr := range checked {
		t.Run(release, func(t *testing.T) {
			e, err := symbolize.Open(library(t, release))
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			start := time.Now()
			d, err := derive(e)
			qt.Assert(t, qt.IsNil(err))
			t.Logf("derived in %v", time.Since(start))
			l := d.layout

			qt.Check(t, qt.Equals(l.BuildID, tr.BuildID))
			for name, want := range expected(t, tr) {
				qt.Check(t, qt.DeepEquals(l.Fields[name], want), qt.Commentf("%s", name))
			}
			impl := !before(release, 0, 79)
			qt.Check(t, qt.Equals(l.ImplArgs, impl))

			mesh := meshText.FindStringSubmatch(tr.Mesh)
			qt.Assert(t, qt.HasLen(mesh, 3), qt.Commentf("%s", tr.Mesh))
			chips := l.Fields["MeshDevice.devices"]
			qt.Assert(t, qt.IsTrue(len(chips) > 0))
			offset, _ := strconv.ParseInt(mesh[1], 0, 32)
			stride, _ := strconv.ParseInt(mesh[2], 0, 32)
			qt.Check(t, qt.Equals(chips[len(chips)-1], int32(offset)))
			qt.Check(t, qt.Equals(l.MeshStride, int(stride)))
			local := -1
			if strings.Contains(tr.Mesh, "MaybeRemote") {
				local = 8
			}
			qt.Check(t, qt.Equals(l.MeshLocal, local))

			checkBanks(t, l)
			checkProbes(t, l, absent(release))
			checkShards(t, l)
			// vital fields have more than one source; up to 0.78 the id has only the
			// constructor
			for name := range bufferFields {
				single := name == "unique_id_" && !impl
				qt.Check(t, qt.Equals(slices.Contains(l.Single, name), single), qt.Commentf("%s: %d", name, d.agreed[name]))
			}
			for _, c := range l.Missing {
				qt.Check(t, qt.SliceContains(absent(release), c.Name), qt.Commentf("%s: %s", c.Name, c.Why))
			}
		})
	}
}

// checkBanks checks fields that are not in the truth: they are the same wherever the class
// has not changed.
func checkBanks(t *testing.T, l *Layout) {
	for _, name := range []string{
		"BankManager.num_banks_", "BankManager.bank_size", "BankManager.alignment_bytes_",
	} {
		qt.Check(t, qt.IsTrue(l.Fields[name] != nil), qt.Commentf("%s", name))
	}
	want := map[string]string{"0x88": "0x78+0x8", "0x48": "0x3b0+0x0+0x8"}[l.Fields["BankManager.alignment_bytes_"].String()]
	qt.Check(t, qt.Equals(l.Fields["BankManager.bank_size"].String(), want))
	for kind, offset := range l.Managers {
		if kind == 2 {
			qt.Check(t, qt.Equals(offset, -1))
			continue
		}
		qt.Check(t, qt.IsTrue(offset > 0 && offset%8 == 0), qt.Commentf("%v", l.Managers))
	}
	qt.Check(t, qt.IsTrue(l.DeviceVtable != 0 && l.MeshVtable != 0 && l.DeviceVtable != l.MeshVtable))
}

func checkProbes(t *testing.T, l *Layout, absent []string) {
	for _, name := range absent {
		qt.Check(t, qt.IsFalse(hasProbe(l, name)), qt.Commentf("%s", name))
	}
	for _, p := range append(slices.Clone(points), point{name: "throw"}, point{name: "bank_shards"}) {
		got := l.Probes[p.name]
		if !slices.Contains(absent, p.name) {
			qt.Check(t, qt.IsTrue(hasProbe(l, p.name)), qt.Commentf("%s: %s", p.name, missing(l, p.name)))
			// all but the stub of std::runtime_error can be probed at half a microsecond
			qt.Check(t, qt.Equals(got.Stepped, p.name == "throw"), qt.Commentf("%s: %+v", p.name, got))
		}
		qt.Check(t, qt.Not(qt.Equals(costs[p.name], "")), qt.Commentf("%s", p.name))
	}
}

// checkShards checks that the registers are three callee-saved ones.
func checkShards(t *testing.T, l *Layout) {
	for i, r := range l.ShardRegisters {
		qt.Check(t, qt.IsTrue(calleeSaved(r)), qt.Commentf("%v", l.ShardRegisters))
		qt.Check(t, qt.IsFalse(slices.Contains(l.ShardRegisters[:i], r)))
	}
	qt.Check(t, qt.StringContains(l.AllocateImpl.Name, "13allocate_implE"))
}

// some are the releases for tests that damage a library: before and after BufferImpl, and
// the one with frame pointers.
var some = []string{"0.64.1", "0.72.0", "0.81.1"}

func image(t testing.TB, release string) []byte {
	t.Helper()
	b, err := os.ReadFile(library(t, release))
	qt.Assert(t, qt.IsNil(err))
	return b
}

func open(t testing.TB, b []byte) *symbolize.ELF {
	t.Helper()
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	return e
}

func hasProbe(l *Layout, name string) bool {
	_, ok := l.Probes[name]
	return ok
}

func missing(l *Layout, name string) string {
	for _, m := range l.Missing {
		if m.Name == name {
			return m.Why
		}
	}
	return ""
}

func TestSymbolsMissing(t *testing.T) {
	for _, release := range some {
		t.Run(release, func(t *testing.T) {
			b := image(t, release)
			for _, name := range []string{
				"Device::id() const", "GraphTracker::track_allocate(PKNS0_6BufferE)", "BankManager::num_banks() const",
			} {
				name := mangle(name)
				hidden := strings.Replace(name, "tt_metal", "tt_petal", 1)
				b = bytes.ReplaceAll(b, []byte(name), []byte(hidden))
			}
			l, err := Derive(open(t, b))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsNotNil(l.Fields["Device.id_"])) // by the virtual table
			qt.Check(t, qt.IsFalse(hasProbe(l, "buffer_allocated")))
			qt.Check(t, qt.StringContains(missing(l, "buffer_allocated"), "has no tt::tt_metal::GraphTracker::track_allocate"))
			// there are other sources
			qt.Check(t, qt.IsTrue(l.Fields["BankManager.num_banks_"] != nil))
			qt.Check(t, qt.IsTrue(l.Fields["size_"] != nil))
			for _, m := range l.Missing {
				qt.Check(t, qt.Not(qt.Equals(m.Costs, "")), qt.Commentf("%s", m.Name))
				qt.Check(t, qt.IsFalse(strings.Contains(m.Why, "\n")))
			}
		})
	}
}

func TestParametersChanged(t *testing.T) {
	b := image(t, "0.81.1")
	// bank_allocate(page size, bottom up, …) in place of (size, page size, …)
	b = bytes.ReplaceAll(b, []byte("11BankManager15allocate_bufferEmmb"), []byte("11BankManager15allocate_bufferEmbm"))
	l, err := Derive(open(t, b))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(hasProbe(l, "bank_allocate")))
	qt.Check(t, qt.StringContains(missing(l, "bank_allocate"), "has unexpected parameters"))
}

func TestNoLibrary(t *testing.T) {
	e, err := symbolize.Open("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	_, err = Derive(e)
	qt.Assert(t, qt.ErrorIs(err, ErrNoLibrary))
}

// overwrite puts bytes in place of a function's code.
func overwrite(t testing.TB, b []byte, e *symbolize.ELF, name string, with func(code []byte)) {
	t.Helper()
	found := e.WithPrefix(mangle(name))
	qt.Assert(t, qt.IsTrue(len(found) > 0), qt.Commentf("%s", name))
	offset, ok := e.FileOffset(found[0].Addr)
	qt.Assert(t, qt.IsTrue(ok))
	with(b[offset : offset+found[0].Size])
}

func TestFunctionsDisagree(t *testing.T) {
	for _, release := range some {
		t.Run(release, func(t *testing.T) {
			b := image(t, release)
			e := open(t, b)
			// is_allocated() compares the next byte
			overwrite(t, b, e, "Buffer::is_allocated() const", func(code []byte) {
				at := bytes.IndexByte(code, 0x80) // cmp byte ptr
				code[at+2]++
			})
			l, err := Derive(open(t, b))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsNil(l.Fields["allocation_status_"]))
			qt.Check(t, qt.Matches(missing(l, "allocation_status_"), `.*address has it at .*, but .*is_allocated at .*`))
		})
	}
}

func TestGarbageInAccessors(t *testing.T) {
	for _, release := range some {
		t.Run(release, func(t *testing.T) {
			whole := image(t, release)
			want, err := Derive(open(t, whole))
			qt.Assert(t, qt.IsNil(err))
			fills := map[string]func(i int) byte{
				"ff": func(int) byte { return 0xff }, "int3": func(int) byte { return 0xcc },
				"zero": func(int) byte { return 0 }, "avx512": func(int) byte { return 0x62 },
				"ud2": func(i int) byte { return []byte{0x0f, 0x0b}[i%2] },
				"any": func(i int) byte { return byte(i*167 + 13 + i>>3*89) },
			}
			e := open(t, whole)
			for fill, at := range fills {
				b := bytes.Clone(whole)
				for _, name := range []string{
					"Buffer::address() const", "Buffer::is_dram() const", "Buffer::num_pages() const", "Buffer::D1()",
					"Device::id() const", "BankManager::bank_size() const", "detail::ProgramImpl::get_id const",
				} {
					overwrite(t, b, e, name, func(code []byte) {
						for i := range code {
							code[i] = at(i)
						}
					})
				}
				l, err := Derive(open(t, b))
				qt.Assert(t, qt.IsNil(err))
				for _, name := range []string{"Device.id_", "BankManager.bank_size", "ProgramImpl.id"} {
					qt.Check(t, qt.IsNil(l.Fields[name]), qt.Commentf("%s: %s", fill, name))
					qt.Check(t, qt.Not(qt.Equals(missing(l, name), "")), qt.Commentf("%s: %s", fill, name))
				}
				for name, c := range l.Fields { // nothing is wrong
					qt.Check(t, qt.DeepEquals(c, want.Fields[name]), qt.Commentf("%s: %s", fill, name))
				}
			}
		})
	}
}

// TestACallOfItself: the function whose result others depend on calls itself, and so do the others.
func TestACallOfItself(t *testing.T) {
	b := image(t, "0.81.1")
	e := open(t, b)
	names := []string{"Buffer::impl() const", "Buffer::impl()", "Buffer::size() const"}
	at := e.WithPrefix(mangle(names[0]))[0].Addr
	for _, name := range names {
		for _, s := range e.WithPrefix(mangle(name)) {
			overwrite(t, b, e, name, func(code []byte) {
				code[0] = 0xe8 // call
				binary.LittleEndian.PutUint32(code[1:], uint32(at-s.Addr-5))
			})
		}
	}
	_, err := Derive(open(t, b))
	qt.Assert(t, qt.IsNil(err))
}

func TestTruncatedLibrary(t *testing.T) {
	b := image(t, "0.72.0")
	for n := len(b); n > 0; n = n * 3 / 4 {
		e, err := symbolize.New(bytes.NewReader(b[:n]), int64(n))
		if err != nil {
			continue
		}
		if l, err := Derive(e); err == nil {
			t.Logf("%d of %d bytes: %d fields, %d missing", n, len(b), len(l.Fields), len(l.Missing))
		}
	}
}

func BenchmarkDerive(b *testing.B) {
	path := library(b, "0.81.1")
	for b.Loop() {
		e, err := symbolize.Open(path)
		qt.Assert(b, qt.IsNil(err))
		_, err = Derive(e)
		qt.Assert(b, qt.IsNil(err))
		e.Close()
	}
	b.ReportAllocs()
}
