package pagetest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is docs/schema.json, in which a field that is not described is an error here.
var schema = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	dir, err := os.Getwd() // of a package of this tree
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil || dir == "/" {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	loaded, err := jsonschema.FileLoader{}.Load("file://" + filepath.Join(dir, "docs/schema.json"))
	if err != nil {
		return nil, err
	}
	closeObjects(loaded)
	c := jsonschema.NewCompiler()
	return c, c.AddResource("schema.json", loaded)
})

// closeObjects forbids all properties that are not described.
func closeObjects(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, isObject := v["properties"]; isObject && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, one := range v {
			closeObjects(one)
		}
	case []any:
		for _, one := range v {
			closeObjects(one)
		}
	}
}

// CheckSchema checks that a JSON document is as docs/schema.json describes it by a name.
func CheckSchema(t testing.TB, name, document string) {
	t.Helper()
	qt.Check(t, qt.IsNil(FitsSchema(t, name, document)), qt.Commentf("docs/schema.json#/$defs/%s", name))
}

// FitsSchema is the error of a document that does not fit its description.
func FitsSchema(t testing.TB, name, document string) error {
	t.Helper()
	c, err := schema()
	qt.Assert(t, qt.IsNil(err))
	described, err := c.Compile("schema.json#/$defs/" + name)
	qt.Assert(t, qt.IsNil(err))
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", document))
	return described.Validate(value)
}
