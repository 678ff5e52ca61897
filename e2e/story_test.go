package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// The story: people come with a question and a program, and the answer is one line of
// that program. Each test below asks one question of ttmem about programs in which that
// line was planted, beside much that is as it should be, and reads the page as a person
// does: the planted line is what it names first, and no other is blamed.

// storyTokens is the number of tokens of the leaking program: it keeps as many tensors of
// storyTensor bytes.
const (
	storyTokens = 120
	storyTensor = 24 << 10 // 4 tiles of 2 KiB take one page of each of 12 banks
)

// askOf runs ttmem on a program: the arguments, then the program after "--".
func askOf(t *testing.T, dir string, ttmemArgs []string, path string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return askWith(t, dir, nil, ttmemArgs, path, args...)
}

// askWith is askOf with more variables in the environment.
func askWith(t *testing.T, dir string, environ, ttmemArgs []string, path string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	python := setup(t, "0.81.1", "3.10").Command(context.Background(), rig.Board("n150"), append([]string{path}, args...)...)
	cmd := exec.Command(ttmem, append(append(slices.Clone(ttmemArgs), "--", python.Path), python.Args[1:]...)...)
	cmd.Env, cmd.Dir = append(storyEnviron(t, python.Env, "n150", dir), environ...), dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// recorded records a program that succeeds.
func recorded(t *testing.T, dir, name, path string, args ...string) (file string) {
	t.Helper()
	file = filepath.Join(dir, name+".ttmem")
	_, errs, status := askOf(t, dir, []string{"run", "-o", file}, path, args...)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	return file
}

// edited is a program after an edit, in its own folder.
func edited(t *testing.T, name string, edits ...string) (path string) {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	qt.Assert(t, qt.IsNil(err))
	changed := strings.NewReplacer(edits...).Replace(string(text))
	qt.Assert(t, qt.Not(qt.Equals(changed, string(text))))
	path = filepath.Join(t.TempDir(), name)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(changed), 0o600)))
	return path
}

// ask runs ttmem, which must succeed.
func ask(t *testing.T, args ...string) (page string) {
	t.Helper()
	out, errs, status := runTtmem(t, nil, args...)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("ttmem %s: %s", strings.Join(args, " "), errs))
	return out
}

var (
	storyName = regexp.MustCompile(`(story_\w+\.py:\d+)[^·\n]* · (ttnn\.\w+)`)
	storyCall = regexp.MustCompile(`story_\w+\.py:\d+`)
	// storyChange is a line of a difference by stack.
	storyChange = regexp.MustCompile(`(?m)^ +[+-]\d.*\.py:\d+.*$`)
)

// named are the names on a page without functions, "model.py:12 · ttnn.add", in order, each once.
func named(page string) (names []string) {
	for _, m := range storyName.FindAllStringSubmatch(page, -1) {
		if name := m[1] + " · " + m[2]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// between is the part of a page from one text to another one, or to its end.
func between(t *testing.T, page, from, to string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, from)
	qt.Assert(t, qt.IsTrue(found), qt.Commentf("no %q in\n%s", from, page))
	part, _, _ := strings.Cut(rest, to)
	return part
}

// planted is the name of a marked line of a program, without its function.
func planted(t *testing.T, op, file, mark string) string {
	t.Helper()
	line := markedLines(t, program(t, file))[mark]
	qt.Assert(t, qt.IsTrue(line > 0))
	return fmt.Sprintf("%s:%d · %s", file, line, op)
}

// mib formats a size as pages do.
func mib(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// A list in a loop keeps the results of one operation, beside weights, a cache that is
// filled once, a state that is replaced, and many temporaries.
func TestStoryOfALeak(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	leak := planted(t, "ttnn.log", "story_leak.py", "leak")
	line, op, _ := strings.Cut(leak, " · ")
	size := mib(storyTokens * storyTensor)
	file := recorded(t, dir, "today", program(t, "story_leak.py"), fmt.Sprint(storyTokens))

	t.Run("what leaks?", func(t *testing.T) {
		page := ask(t, "leaks", file)
		qt.Check(t, qt.DeepEquals(named(page), []string{leak}), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains("\n"+page, "\n"+size+" leaked: ")) // after the growth of who holds it, if that was searched
		qt.Check(t, qt.StringContains(page, "still growing"))
	})
	t.Run("is it in the report?", func(t *testing.T) {
		first := strings.Join(lines(ask(t, "report", file))[:10], "\n")
		qt.Check(t, qt.StringContains(first, fmt.Sprintf("%s leaked: %d buffers from 1 call site\n", size, storyTokens)))
		qt.Check(t, qt.Matches(first, `(?s).*`+regexp.QuoteMeta(line)+` \w+ · `+op+`(, held by .*)?\n.*`))
	})
	t.Run("and while it runs?", func(t *testing.T) {
		page, errs, status := askOf(t, dir, []string{"leaks", "--fail-above", "1MiB"}, program(t, "story_leak.py"), fmt.Sprint(storyTokens))
		qt.Check(t, qt.Equals(status, 3), qt.Commentf("%s", errs))
		qt.Check(t, qt.StringContains(errs, size+" leaked, more than --fail-above 1.0 MiB"))
		qt.Check(t, qt.DeepEquals(named(page), []string{leak}), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains("\n"+page, fmt.Sprintf("\n%s leaked: %d buffers from 1 call site\n", size, storyTokens)))
	})
	t.Run("what uses most?", func(t *testing.T) {
		at := fmt.Sprintf("token#%d", storyTokens)
		page := ask(t, "dump", file, "--at", at, "--by", "file", "--region", "DRAM")
		qt.Check(t, qt.Equals(filepath.Base(lines(page)[2]), "story_leak.py"), qt.Commentf("%s", page))
		page = ask(t, "dump", file, "--at", at, "--by", "stack")
		qt.Check(t, qt.Equals(named(page)[0], leak), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(ask(t, "dump", file), "--at peak"))
		page = ask(t, "peak", file, "--region", "DRAM")
		qt.Check(t, qt.Equals(named(page)[0], leak), qt.Commentf("%s", page))
		page = ask(t, "dump", file, "--at", "story", "--by", "stack") // when all of the leak is live
		qt.Check(t, qt.Equals(named(page)[0], leak), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(page, size), qt.Commentf("%s", page))
		page = ask(t, "map", file, "-n", "0")
		qt.Check(t, qt.StringContains(page, line), qt.Commentf("%s", page))
	})
	t.Run("what changed since yesterday?", func(t *testing.T) {
		repaired := []string{"self.seen.append(ttnn.log(result))", "ttnn.log(result)"}
		yesterday := recorded(t, dir, "yesterday", edited(t, "story_leak.py", repaired...), fmt.Sprint(storyTokens))
		page := ask(t, "diff", yesterday, file)
		qt.Check(t, qt.DeepEquals(named(page), []string{leak}), qt.Commentf("%s", page))
		qt.Check(t, qt.HasLen(storyChange.FindAllString(page, -1), 1), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(page, fmt.Sprintf("+%s        0 B %10s          0 → %d  %s", size, size, storyTokens, line)))
		_, _, status := runTtmem(t, nil, "diff", yesterday, file, "--fail-above", "1MiB")
		qt.Check(t, qt.Equals(status, 3))
		_, _, status = runTtmem(t, nil, "diff", file, yesterday, "--fail-above", "0")
		qt.Check(t, qt.Equals(status, 0))

		page = ask(t, "leaks", yesterday)
		qt.Check(t, qt.HasLen(named(page), 0), qt.Commentf("%s", page))
		qt.Check(t, qt.IsTrue(strings.HasPrefix(page, "No leaks: ")), qt.Commentf("%s", page))
	})
	t.Run("and in a file that was edited?", func(t *testing.T) {
		longer := []string{"self.seen.append(ttnn.log(result))", "ttnn.log(result)", "import sys\n", "import sys  # of the\n# arguments\n"}
		yesterday := recorded(t, dir, "longer", edited(t, "story_leak.py", longer...), fmt.Sprint(storyTokens))
		page := ask(t, "diff", yesterday, file)
		qt.Check(t, qt.StringContains(page, " at another line"))
		qt.Check(t, qt.DeepEquals(named(page), []string{leak}), qt.Commentf("%s", page))
		qt.Check(t, qt.HasLen(storyChange.FindAllString(page, -1), 1), qt.Commentf("%s", page))
	})
	t.Run("what did these steps leave?", func(t *testing.T) {
		page := ask(t, "diff", file, "--from", "token#40", "--to", "token#100")
		qt.Check(t, qt.DeepEquals(named(page), []string{leak}), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(page, fmt.Sprintf("+%s", mib(60*storyTensor))))
	})
	t.Run("what happened to this address?", func(t *testing.T) {
		type buffer struct {
			Address uint64
			SinceNs uint64 `json:"since_ns"`
		}
		var last struct{ Buffers []buffer }
		said := ask(t, "dump", file, "--at", fmt.Sprintf("token#%d", storyTokens), "--grep", "story_leak.py:.* forward ", "--json")
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(said), &last)))
		qt.Assert(t, qt.IsTrue(len(last.Buffers) > 0))
		slices.SortFunc(last.Buffers, func(a, b buffer) int { return cmp.Compare(a.SinceNs, b.SinceNs) })
		place := last.Buffers[len(last.Buffers)/2]
		page := lines(ask(t, "log", file, "--region", "DRAM", "--address", fmt.Sprintf("%#x", place.Address)))
		// temporaries used the address in turn, then a leaked buffer stayed
		qt.Assert(t, qt.IsTrue(len(page) > 4), qt.Commentf("%s", strings.Join(page, "\n")))
		came, went := page[len(page)-2], page[len(page)-1]
		qt.Check(t, qt.DeepEquals(named(came), []string{leak}), qt.Commentf("%s", came))
		qt.Check(t, qt.DeepEquals(named(went), []string{leak}), qt.Commentf("%s", went))
		qt.Check(t, qt.Matches(went, `.* free .*, freed by closing the device`))
		for _, line := range page[:len(page)-2] {
			qt.Check(t, qt.Not(qt.SliceContains(named(line), leak)), qt.Commentf("%s", line))
		}
	})
}

// Memory that is loaded, cached, replaced, or belongs to cached programs is no leak, and no
// line is named for it.
func TestStoryOfNoLeak(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"story_model.py", "story_replaced.py", "story_cache.py"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, errs, status := askOf(t, t.TempDir(), []string{"leaks", "--fail-above", "0"}, program(t, name))
			qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			qt.Check(t, qt.IsTrue(strings.HasPrefix(page, "No leaks: nothing grew to the end.\n")), qt.Commentf("%s", page))
			blamed, kept, found := strings.Cut(page, "Retained by the runtime: program cache")
			qt.Check(t, qt.HasLen(named(blamed), 0), qt.Commentf("%s", page))
			qt.Check(t, qt.Equals(found, name == "story_cache.py"))
			if found { // it grows with each new shape
				qt.Check(t, qt.DeepEquals(named(kept), []string{planted(t, "ttnn.max_pool2d", name, "programs")}), qt.Commentf("%s", page))
			}
		})
	}
}

// An allocation fails with four times as much memory free, and circular buffers overlap a
// tensor: the page has the library's own figures, and names the lines that are in the way.
func TestStoryOfFreeMemory(t *testing.T) {
	t.Parallel()
	const name = "story_fragments.py"
	dir := t.TempDir()
	file := recorded(t, dir, "fragments", program(t, name))
	at := markedLines(t, program(t, name))
	line := func(mark string) string { return fmt.Sprintf("%s:%d", name, at[mark]) }
	l1 := make(map[string]tracetest.MemoryView)
	for _, c := range readCheckpoints(t, dir) {
		l1[c.Name] = c.Devices[0].Regions["L1"]
	}

	// isTheAnswer checks a page with both failures.
	isTheAnswer := func(t *testing.T, page string) {
		t.Helper()
		fragmented, clash, found := strings.Cut(page, "\nL1: circular buffers overlap a tensor")
		qt.Assert(t, qt.IsTrue(found), qt.Commentf("%s", page))
		qt.Check(t, qt.Equals(named(fragmented)[0], planted(t, "ttnn.empty", name, "fragmented")))
		view := l1["fragmented"]
		qt.Check(t, qt.Matches(fragmented, fmt.Sprintf(`(?s).*largest free block +%d B .*free +%d B .*allocated +%d B .*capacity +%d B .*`,
			view.LargestFree, view.Free, view.AllocatedPerBank, view.BytesPerBank)))
		qt.Check(t, qt.IsTrue(view.Free > 4*view.LargestFree))
		inTheWay := storyCall.FindAllString(between(t, fragmented, "allocated by", "All live buffers in L1"), -1)
		qt.Check(t, qt.SliceContains(inTheWay, line("islands")))
		qt.Check(t, qt.Not(qt.SliceContains(inTheWay, line("weights"))))

		qt.Check(t, qt.Equals(named(clash)[0], planted(t, "ttnn.softmax", name, "clash")))
		inTheWay = storyCall.FindAllString(between(t, clash, "allocated by", "All live buffers in L1"), -1)
		qt.Check(t, qt.SliceContains(inTheWay, line("crowd")))
		for _, other := range []string{"islands", "weights", "scratch"} {
			qt.Check(t, qt.Not(qt.SliceContains(inTheWay, line(other))))
		}
	}
	t.Run("why did it fail with memory free?", func(t *testing.T) {
		page := ask(t, "oom", file)
		qt.Check(t, qt.IsTrue(strings.HasPrefix(page, "2 allocations failed in ")), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(page, "proved by replay: it goes to "))
		isTheAnswer(t, page)
	})
	t.Run("and in a program that dies of it?", func(t *testing.T) {
		page, errs, status := askOf(t, dir, []string{"oom"}, program(t, name), "raise")
		qt.Check(t, qt.Equals(status, 1)) // the program's own
		qt.Check(t, qt.StringContains(errs, "RuntimeError"))
		isTheAnswer(t, page)
	})
	t.Run("where are the holes?", func(t *testing.T) {
		page := ask(t, "map", file, "--at", "failure#1", "--region", "L1", "-n", "0")
		qt.Check(t, qt.StringContains(page, "fragmentation 92%"))
		islands, weights := 0, 0
		for _, row := range lines(page) {
			switch {
			case strings.HasSuffix(row, ", from "+line("islands")+" search"):
				islands++
			case strings.Contains(row, ", from "+line("weights")):
				weights++
			default:
				qt.Check(t, qt.HasLen(named(row), 0))
			}
		}
		qt.Check(t, qt.Equals(islands+weights, len(l1["fragmented"].Blocks)))
		qt.Check(t, qt.Equals(weights, 6))
		page = ask(t, "map", file, "--at", "failure#1", "--region", "L1") // a page of it has both
		qt.Check(t, qt.StringContains(page, ", from "+line("islands")+" search"))
		page = ask(t, "map", file, "--at", "failure", "--region", "L1")
		qt.Check(t, qt.StringContains(page, "above the lowest buffer at"))
		qt.Check(t, qt.SliceContains(named(page), planted(t, "ttnn.softmax", name, "clash")))
	})
	t.Run("what did the library say?", func(t *testing.T) {
		page := ask(t, "log", file, "--kind", "alloc_failed")
		qt.Check(t, qt.DeepEquals(named(page), []string{
			planted(t, "ttnn.empty", name, "fragmented"), planted(t, "ttnn.softmax", name, "clash"),
		}), qt.Commentf("%s", page))
		qt.Check(t, qt.StringContains(page, fmt.Sprintf("largest free block: %d B", l1["fragmented"].LargestFree)))
	})
	t.Run("nothing fails in a program that works", func(t *testing.T) {
		page, _, status := askOf(t, dir, []string{"oom"}, program(t, "story_replaced.py"))
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.Equals(page, "No allocation failed in the command.\n"))
	})
}

// Half of the peak belongs to one operation, which has freed it when it returns.
func TestStoryOfAPeak(t *testing.T) {
	t.Parallel()
	const name = "story_peak.py"
	peak := planted(t, "ttnn.tril", name, "peak")
	line, op, _ := strings.Cut(peak, " · ")
	page, errs, status := askOf(t, t.TempDir(), []string{"peak", "--region", "DRAM"}, program(t, name))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.Equals(named(page)[0], peak), qt.Commentf("%s", page))
	for _, mark := range []string{"weights", "input"} { // their stacks may end early, as the first ones
		qt.Check(t, qt.StringContains(page, fmt.Sprintf("%s:%d", name, markedLines(t, program(t, name))[mark])))
	}
	qt.Check(t, qt.Matches(page, `(?s).* 4\.0 MiB +50% +2  `+regexp.QuoteMeta(line)+` mask · `+op+`\n.*`), qt.Commentf("%s", page))
}
