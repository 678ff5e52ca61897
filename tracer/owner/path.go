package owner

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Path leads from a root to an object.
type Path []Step

// A Step is one reference of a path.
type Step struct {
	// Kind is module, local or thread for the first step, and then attribute, item, key and the
	// like, as named by kindNames.
	Kind string `json:"kind"`
	// Name is that of a module, a variable or an attribute, or the key of a dict as Python writes
	// it, where it is known; Function the function of a variable.
	Name     string `json:"name,omitempty"`
	Function string `json:"function,omitempty"`
	// Index is the number of an item, or the offset of a field without a name.
	Index uint64 `json:"index,omitempty"`
	// Object is the address of what the step leads to.
	Object uint64 `json:"object"`
}

// kindNames are the names of the kinds of steps.
var kindNames = map[stepKind]string{
	moduleStep: "module", localStep: "local", threadStep: "thread", attribute: "attribute", slotStep: "attribute", item: "item",
	key: "key", keyItself: "a key", element: "element", field: "field", content: "content", closure: "closure", defaults: "default",
	boundSelf: "self", boundFunc: "function", frameOf: "frame", cause: "of exception", nextTrace: "next", garbage: "garbage",
	cache: "cache", result: "result", baseOf: "attribute", flat: "flat", callback: "callback",
}

// threadRoots are the names of what a thread holds.
var threadRoots = []string{"thread's dict", "context", "exception being raised", "exception being handled"}

// maxSteps bounds the steps of a path. Of a longer one, such as in a list that is linked by hand,
// the first ones are left out.
const maxSteps = 256

// path returns the path to a node.
func (w *walk) path(at uint32) (p Path) {
	for ; at != noNode && len(p) < maxSteps; at = w.nodes.at(at).from {
		p = append(p, w.step(w.nodes.at(at)))
	}
	if at != noNode {
		p = append(p, Step{Kind: "rest"})
	}
	slices.Reverse(p)
	return p
}

func (w *walk) step(n *node) Step {
	s := Step{Kind: kindNames[n.kind], Object: n.object}
	switch n.kind {
	case moduleStep, attribute:
		s.Name, _ = w.str(n.ref)
	case slotStep:
		s.Name = w.cString(n.ref)
	case localStep:
		code := n.ref >> 16
		if i := n.ref & mapping; i != mapping {
			s.Name = w.local(code, i)
		}
		s.Function = w.functionName(code)
	case key:
		s.Name = w.repr(n.ref)
	case threadStep:
		s.Name = threadRoots[n.ref]
	case garbage:
		s.Name = w.nameOfType(n.object)
	case baseOf:
		s.Name = "base"
	case cause:
		s.Name = [...]string{"args", "__traceback__", "__context__", "__cause__"}[w.partOfException(n.ref)]
	case defaults:
		s.Name = map[uint64]string{56: "__defaults__", 64: "__kwdefaults__"}[n.ref]
	default:
		s.Index = n.ref
	}
	return s
}

func (w *walk) partOfException(offset uint64) uint64 {
	if offset < uint64(w.heap.Traceback) {
		return 0
	}
	return min((offset-uint64(w.heap.Traceback))/8+1, 3)
}

// functionName returns the name of a code object's function.
func (w *walk) functionName(code uint64) string {
	name, _ := w.str(w.word(code + uint64(w.runtime.Offsets.CodeName)))
	return name
}

// repr returns a key as Python writes it; "" unless it is a str or a small int.
func (w *walk) repr(at uint64) string {
	if s, ok := w.str(at); ok {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
	}
	t := w.typeOf(w.word(at + 8))
	var b [28]byte
	if t == nil || t.name != "int" || !w.read(at, b[:]) {
		return ""
	}
	// one digit of 30 bits; before 3.12 the number of digits has the sign, then the lowest 3 bits
	digits, digit := int64(binary.LittleEndian.Uint64(b[16:])), int64(binary.LittleEndian.Uint32(b[24:]))
	if w.runtime.Minor >= 12 {
		sign := 1 - digits&3
		digits = digits >> 3 * sign
		if sign == 0 {
			digits = 0
		}
	}
	switch digits {
	case 0:
		return "0"
	case 1:
		return strconv.FormatInt(digit, 10)
	case -1:
		return strconv.FormatInt(-digit, 10)
	}
	return ""
}

// texts are how paths write some kinds of steps, and numbered those with an index.
var (
	texts = map[string]string{
		"a key": "{…}", "element": "{…}", "self": ".__self__", "frame": ": ", "field": ".?", "cache": ".cache",
		"callback": ".__callback__", "rest": "…",
	}
	numbered = map[string]string{"item": "[%d]", "closure": ".__closure__[%d]", "flat": ".flat[%d]"}
)

// String is the path as a reader of Python writes it: model.layers[0].attention.wq; local x of
// forward().
func (p Path) String() string {
	var b strings.Builder
	where := ""
	for i, s := range p {
		switch s.Kind {
		case "module":
			if s.Name != "__main__" {
				b.WriteString(s.Name)
			}
		case "local":
			if i > 0 && p[i-1].Kind != "frame" {
				b.WriteString(": ")
			}
			where = " of " + s.Function + "()" + where
			b.WriteString("local " + s.Name)
		case "thread":
			b.WriteString(s.Name)
		case "attribute", "default":
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Name)
		case "key":
			b.WriteString("[" + cmp.Or(s.Name, "…") + "]")
		case "content":
			if i > 0 && p[i-1].Kind != "local" { // the name of a local variable is that of its content
				b.WriteString(".cell_contents")
			}
		case "of exception":
			b.WriteString("." + s.Name)
		case "garbage":
			b.WriteString("a " + s.Name + " without a name")
		case "item", "closure", "flat":
			fmt.Fprintf(&b, numbered[s.Kind], s.Index)
		default: // "function", "next" and "result" have no text
			b.WriteString(texts[s.Kind])
		}
	}
	return shorten(b.String() + where)
}

// maxText bounds the text of a path, in bytes: its begin and its end say most.
const maxText = 240

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText/2]+"…"+s[len(s)-maxText/2:], "")
}
