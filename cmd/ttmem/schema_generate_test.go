package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page/advise"
	"ttmem/cmd/ttmem/internal/page/diagnosis"
	"ttmem/cmd/ttmem/internal/page/diff"
	"ttmem/cmd/ttmem/internal/page/dump"
	"ttmem/cmd/ttmem/internal/page/eventlog"
	"ttmem/cmd/ttmem/internal/page/fit"
	"ttmem/cmd/ttmem/internal/page/leaks"
	"ttmem/cmd/ttmem/internal/page/memmap"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/cmd/ttmem/internal/page/ops"
	"ttmem/cmd/ttmem/internal/page/peak"
	"ttmem/cmd/ttmem/internal/page/phases"
	"ttmem/cmd/ttmem/internal/page/report"
	"ttmem/cmd/ttmem/internal/steps"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
)

const schemaFile = "../../docs/schema.json"

// schemaDocuments are the names in docs/schema.json of the documents, with their declarations.
var schemaDocuments = []struct {
	name string
	of   reflect.Type
}{
	{"event", reflect.TypeFor[eventlog.Line]()},
	{"report", reflect.TypeFor[report.Document]()},
	{"snapshot", reflect.TypeFor[memory.Snapshot]()},
	{"health", reflect.TypeFor[service.Health]()},
	{"dump", reflect.TypeFor[dump.Document]()},
	{"dump_groups", reflect.TypeFor[dump.GroupsDocument]()},
	{"peak", reflect.TypeFor[peak.Document]()},
	{"leaks", reflect.TypeFor[leaks.Document]()},
	{"diff", reflect.TypeFor[diff.Document]()},
	{"ops", reflect.TypeFor[ops.Document]()},
	{"phases", reflect.TypeFor[phases.Document]()},
	{"oom", reflect.TypeFor[oom.Document]()},
	{"advise", reflect.TypeFor[advise.Document]()},
	{"fit", reflect.TypeFor[fit.Document]()},
	{"map", reflect.TypeFor[memmap.Document]()},
	{"doctor", reflect.TypeFor[diagnosis.Page]()},
	{"step", reflect.TypeFor[steps.Step]()},
	{"step_peaks", reflect.TypeFor[steps.Peaks]()},
}

// schemaValues are descriptions that the tag schema of a field names.
func schemaValues() object {
	return object{
		{"wall_ns", object{{"description", "The time before it by the wall clock, in ns since 1970. It is left out if that is not known."}, {"type", "integer"}}},
		{"user", object{{"description", "The user of the process before it: the name or, without one, the id. It is left out if that is not known."}, {"type", "string"}}},
		{"stack", object{{"description", "The calls, innermost first."}, {"type", "array"}, {"items", ref("frame")}}},
		{"cores", object{
			{"description", "Rectangles of cores: x0, y0, x1, y1."}, {"type", "array"},
			{"items", object{{"type", "array"}, {"items", object{{"type", "integer"}, {"minimum", 0}}}, {"minItems", 4}, {"maxItems", 4}}},
		}},
		{"region", object{{"description", "CB has circular and dataflow buffers, KERNEL the binaries of kernels."}, {"enum", namesOf(event.DRAM, event.Kernel)}}},
		{"banked_region", object{{"description", "A region of buffers."}, {"enum", namesOf(event.DRAM, event.Trace)}}},
		{"layout", object{{"enum", slices.Concat(namesOf(event.Interleaved, event.Interleaved), namesOf(event.HeightSharded, event.NDSharded))}}},
		{"static_kind", object{{"enum", namesOf(event.CircularBuffer, event.Scratchpad)}}},
		{"kernel_kind", object{{"enum", namesOf(event.QueueKernels, event.RuntimeKernels)}}},
		{"kind", object{{"description", "The kinds of events: docs/events.md describes them."}, {"enum", namesOf(event.Alloc, event.BufferRead)}}},
		{"reason", object{{"description", "Why something ended or failed: docs/events.md describes the reasons."}, {"enum", namesOf(event.ReasonExplicit, event.ReasonOther)}}},
		{"class", object{
			{"description", "What buffers are for, by the call stack that allocated them or by their owner. It is left out if neither tells, and of groups whose buffers differ."},
			{"enum", []string{
				"tensor", "buffer", "kernel binaries", "program cache", "trace", "command queues", "global semaphore", "global circular buffer", "socket",
			}},
		}},
	}
}

// namesOf returns the names of the values from one to another.
func namesOf[T interface {
	~uint8
	String() string
}](first, last T) (names []string) {
	for v := first; v <= last; v++ {
		names = append(names, v.String())
	}
	return names
}

// An object is a JSON object with its fields in order.
type object []member

type member struct {
	key   string
	value any
}

// A schemaWriter makes docs/schema.json from the declarations of documents.
type schemaWriter struct {
	t       testing.TB
	uses    map[reflect.Type]int
	names   map[reflect.Type]string // of $defs
	types   map[string]reflect.Type // by name
	order   []reflect.Type
	keys    map[string]string              // of all fields, by their names
	sources map[string]map[string]declared // by package and type
}

// declared is what the source says of a type.
type declared struct {
	name   string // of the directive //schema:NAME
	doc    string
	fields map[string]string // the comments by the field's name
}

// TestSchemaIsOfTheDeclarations: docs/schema.json is what -update makes of the declarations of documents
// and their comments.
func TestSchemaIsOfTheDeclarations(t *testing.T) {
	w := &schemaWriter{
		t: t, uses: make(map[reflect.Type]int), names: make(map[reflect.Type]string), types: make(map[string]reflect.Type),
		sources: make(map[string]map[string]declared), keys: make(map[string]string),
	}
	got := w.schema()
	if *updateGolden {
		qt.Assert(t, qt.IsNil(os.WriteFile(schemaFile, got, 0o644)))
	}
	want, err := os.ReadFile(schemaFile)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(got), string(want)), qt.Commentf("go test ./cmd/ttmem -run TestSchemaIs -update"))
}

func (w *schemaWriter) schema() []byte {
	for _, d := range schemaDocuments {
		w.define(d.of, d.name)
		w.count(d.of)
	}
	for _, of := range w.order {
		if name := w.declared(of).name; w.names[of] == "" && (name != "" || w.uses[of] > 1) {
			if name == "" {
				name = snake(of.Name())
			}
			w.define(of, name)
		}
	}
	defs := schemaValues()
	for _, of := range w.order {
		if w.names[of] != "" {
			defs = append(defs, member{w.names[of], w.object(of)})
		}
	}
	var b bytes.Buffer
	w.write(&b, object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "The JSON documents of ttmem"},
		{"description", `Each document is one of $defs, such as "#/$defs/leaks". Fields may be added: times are CLOCK_MONOTONIC in ns, sizes are in bytes.`},
		{"$defs", defs},
	}, "")
	return append(b.Bytes(), '\n')
}

func (w *schemaWriter) define(of reflect.Type, name string) {
	qt.Check(w.t, qt.IsNil(w.types[name]), qt.Commentf("%s and %s have the name %s: give one a //schema:NAME", of, w.types[name], name))
	w.names[of], w.types[name] = name, of
}

// elem returns the type of the values of lists, pointers and maps of it.
func elem(t reflect.Type) reflect.Type {
	for {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			if isStack(t) {
				return t
			}
			t = t.Elem()
		case reflect.Func: // an iter.Seq
			t = t.In(0).In(0)
		default:
			return t
		}
	}
}

func isStack(t reflect.Type) bool { return t == reflect.TypeFor[*event.Stack]() }

// count counts where types are used, in the order of their first uses.
func (w *schemaWriter) count(of reflect.Type) {
	if isStack(of) {
		of = reflect.TypeFor[event.Frame]()
	}
	if of.Kind() != reflect.Struct {
		return
	}
	if w.uses[of]++; w.uses[of] == 1 {
		w.order = append(w.order, of)
		for _, f := range document.Fields(of) {
			w.keys[f.Name] = f.Key
			w.count(elem(f.Type))
		}
	}
}

// value describes the values of a type.
func (w *schemaWriter) value(t reflect.Type, tag string) object {
	switch {
	case isStack(t):
		return ref("stack")
	case t == reflect.TypeFor[[][4]uint16]():
		return ref("cores")
	case t.Kind() == reflect.Struct && w.names[t] != "":
		return ref(w.names[t])
	case t.Kind() == reflect.Struct:
		return w.object(t)
	case t.Kind() == reflect.String && tag != "":
		return w.values(tag)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.value(t.Elem(), tag)
	case reflect.Slice:
		return object{{"type", "array"}, {"items", w.value(t.Elem(), tag)}}
	case reflect.Func:
		return object{{"type", "array"}, {"items", w.value(elem(t), tag)}}
	case reflect.Array:
		return object{{"type", "array"}, {"items", w.value(t.Elem(), tag)}, {"minItems", t.Len()}, {"maxItems", t.Len()}}
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", w.value(t.Elem(), tag)}}
	case reflect.String:
		return object{{"type", "string"}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{{"type", "integer"}}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{{"type", "integer"}, {"minimum", 0}}
	}
	w.t.Fatalf("%s is in a document", t)
	return nil
}

func ref(name string) object { return object{{"$ref", "#/$defs/" + name}} }

// values describes texts: with | between names of $defs and single texts.
func (w *schemaWriter) values(tag string) object {
	var texts []string
	var choices []object
	for _, one := range strings.Split(tag, "|") {
		if slices.ContainsFunc(schemaValues(), func(m member) bool { return m.key == one }) {
			choices = append(choices, ref(one))
		} else {
			texts = append(texts, one)
		}
	}
	if texts != nil {
		choices = append(choices, object{{"enum", texts}})
	}
	if len(choices) == 1 {
		return choices[0]
	}
	return object{{"anyOf", choices}}
}

// object describes a struct.
func (w *schemaWriter) object(t reflect.Type) object {
	keys := make(map[string]string) // by the field's name
	fields := document.Fields(t)
	for _, f := range fields {
		keys[f.Name] = f.Key
	}
	var properties object
	var required []string
	for _, f := range fields {
		one := w.value(f.Type, f.Tag.Get("schema"))
		if f.Key == "v" {
			one = object{{"const", 1}}
		}
		text := w.declared(f.Of).fields[f.Name]
		if f.About != "" {
			text = strings.ToUpper(f.About[:1]) + f.About[1:] + "."
		}
		if text != "" {
			one = slices.DeleteFunc(one, func(m member) bool { return m.key == "description" })
			one = append(object{{"description", w.described(f.Name, text, keys)}}, one...)
		}
		properties = append(properties, member{f.Key, one})
		if !f.Optional {
			required = append(required, f.Key)
		}
		if f.Wall != "" {
			properties = append(properties, member{f.Wall, ref("wall_ns")})
		}
		if f.User != "" {
			properties = append(properties, member{f.User, ref("user")})
		}
	}
	var all object
	if text := w.declared(t).doc; text != "" {
		all = append(all, member{"description", w.described(declarer(t).Name(), text, keys)})
	}
	all = append(all, member{"type", "object"})
	if required != nil {
		all = append(all, member{"required", required})
	}
	return append(all, member{"properties", properties})
}

var (
	goName = regexp.MustCompile(`\b[A-Z]\w*\b`)
	goNil  = regexp.MustCompile(`\bnil\b`)
)

// described is the comment of a type or a field for those who read documents: without its name, and with
// keys in place of the names of fields.
func (w *schemaWriter) described(name, text string, keys map[string]string) string {
	text = goNil.ReplaceAllString(text, "left out")
	whole := text
	for _, verb := range []string{" is ", " are "} {
		for _, article := range []string{"", "A ", "An "} {
			whole = strings.TrimPrefix(whole, article+name+verb)
		}
	}
	described := goName.ReplaceAllStringFunc(whole, func(name string) string {
		key := keys[name]
		if key == "" && strings.ContainsFunc(name[1:], unicode.IsUpper) {
			key = w.keys[name]
		}
		return cmp.Or(key, name)
	})
	if whole != text {
		described = strings.ToUpper(described[:1]) + described[1:]
	}
	return described
}

// declarer returns the type whose comment describes a type: the one that declares its fields.
func declarer(t reflect.Type) reflect.Type {
	if d, ok := reflect.Zero(t).Interface().(document.Declarer); ok {
		return d.Declared()[0].Of
	}
	return t
}

// declared returns what the source says of a type.
func (w *schemaWriter) declared(t reflect.Type) declared {
	t = declarer(t)
	types := w.sources[t.PkgPath()]
	if types == nil {
		types = make(map[string]declared)
		w.sources[t.PkgPath()] = types
		files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(t.PkgPath(), "ttmem/"), "*.go"))
		qt.Assert(w.t, qt.IsNil(err))
		for _, path := range files {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			qt.Assert(w.t, qt.IsNil(err))
			for _, d := range file.Decls {
				addDeclared(types, d)
			}
		}
	}
	return types[t.Name()]
}

func addDeclared(types map[string]declared, decl ast.Decl) {
	d, ok := decl.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, spec := range d.Specs {
		s, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		of, ok := s.Type.(*ast.StructType)
		if !ok {
			continue
		}
		one := declared{doc: lineOf(d.Doc), fields: make(map[string]string)}
		if d.Doc != nil {
			for _, c := range d.Doc.List {
				if name, ok := strings.CutPrefix(c.Text, "//schema:"); ok {
					one.name = name
				}
			}
		}
		for _, f := range of.Fields.List {
			for _, name := range f.Names {
				if one.fields[name.Name] = lineOf(f.Doc); f.Doc == nil {
					one.fields[name.Name] = lineOf(f.Comment)
				}
			}
		}
		types[s.Name.Name] = one
	}
}

// lineOf is the first paragraph of a comment as one line. What follows it is about the Go value.
func lineOf(c *ast.CommentGroup) string {
	text, _, _ := strings.Cut(c.Text(), "\n\n")
	return strings.Join(strings.Fields(text), " ")
}

// snake is the name of a type as JSON has names.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// schemaWidth is the width of lines that are not broken.
const schemaWidth = 140

// write writes a value: in one line if it fits.
func (w *schemaWriter) write(b *bytes.Buffer, value any, indent string) {
	flat := w.flat(value)
	if texts, ok := value.([]string); ok && len(indent)+len(flat) > schemaWidth {
		line := schemaWidth
		b.WriteByte('[')
		for i, text := range texts {
			if i > 0 {
				b.WriteByte(',')
			}
			one := w.flat(text)
			if line += len(one) + 2; line > schemaWidth {
				b.WriteString("\n" + indent + "  ")
				line = len(indent) + len(one) + 4
			} else {
				b.WriteByte(' ')
			}
			b.WriteString(one)
		}
		b.WriteString("\n" + indent + "]")
		return
	}
	list, isObject := value.(object)
	if !isObject || len(indent)+len(flat) < schemaWidth && indent != "" {
		b.WriteString(flat)
		return
	}
	b.WriteString("{")
	for i, m := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "\n%s  %q: ", indent, m.key)
		w.write(b, m.value, indent+"  ")
	}
	b.WriteString("\n" + indent + "}")
}

// flat is a value in one line.
func (w *schemaWriter) flat(value any) string {
	switch v := value.(type) {
	case object:
		var parts []string
		for _, m := range v {
			parts = append(parts, fmt.Sprintf("%q: %s", m.key, w.flat(m.value)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []object:
		var parts []string
		for _, one := range v {
			parts = append(parts, w.flat(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []string:
		var parts []string
		for _, one := range v {
			parts = append(parts, w.flat(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	qt.Assert(w.t, qt.IsNil(out.Encode(value)))
	return strings.TrimSpace(b.String())
}
