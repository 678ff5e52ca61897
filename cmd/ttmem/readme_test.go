package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/tracer/event"
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
	for _, line := range documentedLines(t, path) {
		line, _, _ = strings.Cut(line, "|")
		list = append(list, strings.Fields(line))
	}
	return list
}

// documentedLines are the commands in the code of a page, after the word ttmem.
func documentedLines(t *testing.T, path string) (list []string) {
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	inline := regexp.MustCompile("`([^`]+)`")
	command := regexp.MustCompile(`^\s*(?:\$ )?(?:sudo )?(?:TTMEM_\w+=\S+ )?ttmem ([a-z].*)`)
	block := false
	for _, row := range strings.Split(string(text), "\n") {
		code := [][]string{{"", row}}
		switch {
		case strings.HasPrefix(row, "```"):
			block = !block
			continue
		case !block && !strings.HasPrefix(row, "    "):
			code = inline.FindAllStringSubmatch(row, -1)
		}
		for _, c := range code {
			if found := command.FindStringSubmatch(c[1]); found != nil {
				line, _, _ := strings.Cut(found[1], " #")
				list = append(list, strings.TrimSpace(line))
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

// TestDocumentedCommandsRun: the commands of README.md, docs and help texts that name recordings give
// an answer if the recordings have what the commands name, and so do the programs behind pipes.
func TestDocumentedCommandsRun(t *testing.T) {
	recordings, pid := t.TempDir(), ""
	for story, files := range map[string]string{
		"leak":      "model today now attached loop a two",
		"repaired":  "yesterday b one",
		"fragments": "fragments",
	} {
		s := readStory(t, storyEvents(goldenFolder, story))
		s.mark(slices.Concat([]string{"warm", "loaded"}, slices.Repeat([]string{"step"}, 20),
			slices.Repeat([]string{"token"}, 100), []string{"trained", "done"}))
		if story == "leak" {
			pid = strconv.Itoa(s.events[0].PID)
		}
		for _, file := range strings.Fields(files) {
			s.record(t, filepath.Join(recordings, file+".ttmem"), 0)
		}
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(recordings, "model.rules"), []byte(goldenRules), 0o600)))
	exe, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.Symlink(exe, filepath.Join(recordings, "ttmem"))))

	lines := helpExamples(newRoot())
	for _, path := range pagesOfTheTree(t) {
		lines = append(lines, documentedLines(t, path)...)
	}
	slices.Sort(lines)
	ran := 0
	for _, line := range slices.Compact(lines) {
		line, then, _ := strings.Cut(line, " | ")
		line, _, _ = strings.Cut(line, "  ") // a remark
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasSuffix(words[1], ".ttmem") || strings.ContainsAny(words[1], "/…") || words[0] == "top" ||
			slices.Contains(words, "--") || words[0] == "diff" && slices.Contains(words, "-p") {
			continue // not of a file, or in a terminal
		}
		ran++
		dir := t.TempDir()
		qt.Assert(t, qt.IsNil(os.CopyFS(dir, os.DirFS(recordings))))
		shell := func(script string) {
			cmd := exec.Command("sh", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), asCommand+"=1", "PATH="+recordings+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil && cmd.ProcessState.ExitCode() != 3 { // --fail-above
				t.Errorf("%s: %v: %s", script, err, out)
			}
		}
		line = strings.ReplaceAll(aLine.ReplaceAllString(line, " story_leak.py:21"), " -p 4242", " -p "+pid)
		shell("ttmem " + line + " >answer")
		if tool := strings.Fields(then + " -")[0]; tool != "-" {
			if _, err := exec.LookPath(tool); err == nil && tool != "less" {
				shell(then + " <answer")
			}
		}
	}
	qt.Check(t, qt.IsTrue(ran > 50), qt.Commentf("%d", ran))
}

// aLine is a line of code in an example.
var aLine = regexp.MustCompile(` model\.py:\d+`)

// helpExamples are the examples of all commands, after the word ttmem.
func helpExamples(c *cobra.Command) (lines []string) {
	for line := range strings.Lines(c.Example) {
		if _, command, found := strings.Cut(line, "ttmem "); found {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	for _, sub := range c.Commands() {
		lines = append(lines, helpExamples(sub)...)
	}
	return lines
}

// mark puts marks between the events, at equal distances.
func (s *storyStream) mark(names []string) {
	var marked []event.Event
	for i, e := range s.events {
		marked = append(marked, e)
		if next := len(marked) - i - 1; next < len(names) && i >= (next+1)*len(s.events)/(len(names)+1) {
			marked = append(marked, event.Event{Kind: event.Mark, TimeNs: e.TimeNs, Cause: names[next]})
		}
	}
	s.events = marked
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
