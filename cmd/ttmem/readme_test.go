package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/spf13/pflag"

	"ttmem/cmd/ttmem/flags"
)

// pagesOfTheTree are README.md and the pages of docs.
func pagesOfTheTree(t *testing.T) []string {
	pages, err := filepath.Glob("../../docs/*.md")
	qt.Assert(t, qt.IsNil(err))
	return append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../python/ttmem/README.md")
}

// documentedCommands are the arguments of ttmem in the code of a page: in its blocks and its
// sentences.
func documentedCommands(t *testing.T, path string) (list [][]string) {
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	inline := regexp.MustCompile("`([^`]+)`")
	command := regexp.MustCompile(`^\s*(?:\$ )?(?:sudo )?(?:TTMEM_\w+=\S+ )?ttmem ([a-z][^|]*)`)
	block := false
	for _, row := range strings.Split(string(text), "\n") {
		code := [][]string{{"", row}}
		switch {
		case strings.HasPrefix(row, "```"):
			block = !block
			continue
		case !block:
			code = inline.FindAllStringSubmatch(row, -1)
		}
		for _, c := range code {
			if found := command.FindStringSubmatch(c[1]); found != nil {
				line, _, _ := strings.Cut(found[1], " #")
				list = append(list, strings.Fields(line))
			}
		}
	}
	return list
}

// TestDocumentedCommandsExist: the commands and flags of README.md and docs are ttmem's.
func TestDocumentedCommandsExist(t *testing.T) {
	for _, path := range pagesOfTheTree(t) {
		for _, args := range documentedCommands(t, path) {
			root := newRoot()
			root.InitDefaultHelpCmd()
			c, rest, err := root.Find(args)
			if err != nil || c == root {
				t.Errorf("%s: no command: ttmem %s", path, args)
				continue
			}
			for _, arg := range rest {
				if arg == "--" {
					break
				}
				name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
				var f *pflag.Flag
				switch {
				case name == "help":
					continue
				case strings.HasPrefix(arg, "--"):
					f = c.Flag(name)
				case strings.HasPrefix(arg, "-") && len(arg) == 2:
					f = c.Flags().ShorthandLookup(name)
				default:
					continue
				}
				ofAll := root.PersistentFlags().Lookup(name) != nil
				qt.Check(t, qt.IsTrue(f != nil && (!ofAll || flags.TakesGlobal(c, name))), qt.Commentf("%s: %s in ttmem %s", path, arg, args))
			}
		}
	}
	qt.Check(t, qt.IsTrue(len(documentedCommands(t, "../../README.md")) > 20))
}

// TestDocumentedFilesExist: links in README.md and docs lead to files and headings.
func TestDocumentedFilesExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^):]+)\)`)
	for _, path := range pagesOfTheTree(t) {
		text, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			file, heading, _ := strings.Cut(found[1], "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(to)
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s: %s", path, found[1]))
			if heading != "" {
				qt.Check(t, qt.IsTrue(slices.Contains(headings(t, to), heading)), qt.Commentf("%s: %s", path, found[1]))
			}
		}
	}
}

// headings are the names by which links lead to the headings of a page.
func headings(t *testing.T, path string) (names []string) {
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, row := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(row, "#") {
			title := dropped.ReplaceAllString(strings.ToLower(strings.TrimLeft(row, "# ")), "")
			names = append(names, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return names
}

// TestReadmeInstallsTheRelease: the packages that README.md names are those of `make dist`.
func TestReadmeInstallsTheRelease(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	qt.Assert(t, qt.IsNil(err))
	changes, err := os.ReadFile("../../CHANGELOG.md")
	qt.Assert(t, qt.IsNil(err))
	release := regexp.MustCompile(`(?m)^## ([0-9.]+)$`).FindStringSubmatch(string(changes))[1]
	qt.Check(t, qt.StringContains(string(readme), "ttmem_"+release+"_amd64.deb"))
	qt.Check(t, qt.StringContains(string(readme), "ttmem-"+release+"-linux-amd64.tar.gz"))
}
