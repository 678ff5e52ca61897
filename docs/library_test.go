package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// notOfTheLibrary is in the comment of each package that others can import and that is not in library.md.
const notOfTheLibrary = "It is not part of ttmem's Go library: it changes without notice."

// libraryPackages are the packages of library.md, as folders of the tree.
func libraryPackages(t *testing.T) (folders []string) {
	text, ok := Page("library")
	qt.Assert(t, qt.IsTrue(ok))
	for _, found := range regexp.MustCompile("(?m)^\\| `ttmem/([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		folders = append(folders, found[1])
	}
	return folders
}

// TestPackagesAreOfTheLibraryOrSayThatTheyAreNot: each package that a program of another module can import is in
// library.md, or its comment says that it is not.
func TestPackagesAreOfTheLibraryOrSayThatTheyAreNot(t *testing.T) {
	library := libraryPackages(t)
	comments := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "internal" || path == "../e2e" || path != ".." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err == nil && file.Name.Name != "main" {
			comments[strings.TrimPrefix(filepath.Dir(path), "../")] += file.Doc.Text()
		}
		return err
	})
	qt.Assert(t, qt.IsNil(err))
	for folder, comment := range comments {
		if folder == "." {
			folder = "docs"
		}
		says := strings.Contains(comment, notOfTheLibrary)
		qt.Check(t, qt.Equals(says, !slices.Contains(library, folder)), qt.Commentf("%s: its comment is %q", folder, comment))
	}
	for _, folder := range library {
		qt.Check(t, qt.IsTrue(comments[folder] != ""), qt.Commentf("no package %s", folder))
	}
}

// TestCodeIsThatOfExamples: the code of library.md is that of examples, which run as tests.
func TestCodeIsThatOfExamples(t *testing.T) {
	var examples []string
	for _, folder := range libraryPackages(t) {
		files, err := filepath.Glob(filepath.Join("..", folder, "example*_test.go"))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(len(files) > 0), qt.Commentf("%s has no examples", folder))
		for _, path := range files {
			text, err := os.ReadFile(path)
			qt.Assert(t, qt.IsNil(err))
			for _, found := range regexp.MustCompile(`(?s)\nfunc Example\w*\(\) \{\n(.*?)\t// (?:Unordered o|O)utput:`).FindAllStringSubmatch(string(text), -1) {
				examples = append(examples, regexp.MustCompile(`(?m)^\t`).ReplaceAllString(found[1], ""))
			}
		}
	}
	text, _ := Page("library")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	qt.Check(t, qt.HasLen(blocks, 3))
	for _, block := range blocks {
		code := strings.ReplaceAll(block[1], `"model.ttmem"`, "model")
		qt.Check(t, qt.IsTrue(slices.Contains(examples, code)), qt.Commentf("no example has this code:\n%s", code))
	}
}
