package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// shells are scripts that print the completions of the words in $line, the last of which is begun,
// each on a line. $script is ttmem's.
var shells = []struct{ name, script string }{
	{"bash", `
		. /usr/share/bash-completion/bash_completion && . "$script" || exit
		COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=63 COMP_KEY=9
		read -ra COMP_WORDS <<<"$line"
		[[ $line != *' ' ]] || COMP_WORDS+=('')
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		compopt() { :; } # which works only while a user types
		__start_ttmem
		printf '%s\n' "${COMPREPLY[@]}"`},
	{"zsh", `
		compdef() { :; }
		. "$script" || exit
		_describe() { print -rl -- "${completions[@]}" }
		words=(${(z)line}); [[ $line != *' ' ]] || words+=('')
		CURRENT=$#words
		_ttmem`},
	{"fish", `source "$script"; and complete --do-complete "$line"`},
}

// TestShellsComplete: commands, flags, their values, and PIDs of processes that use tt-metal.
func TestShellsComplete(t *testing.T) {
	dir := t.TempDir()
	binary, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.Symlink(binary, filepath.Join(dir, "ttmem"))))

	// a process that maps a file of the library's name
	sleep, err := exec.LookPath("sleep")
	qt.Assert(t, qt.IsNil(err))
	text, err := os.ReadFile(sleep)
	qt.Assert(t, qt.IsNil(err))
	library := filepath.Join(dir, "libtt_metal.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(library, text, 0o755)))
	program := exec.Command(library, "600")
	program.Args[0] = "/usr/bin/sleep"
	qt.Assert(t, qt.IsNil(program.Start()))
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()
	pid := fmt.Sprint(program.Process.Pid)

	t.Setenv(asCommand, "yes")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, shell := range shells {
		t.Run(shell.name, func(t *testing.T) {
			_, err := exec.LookPath(shell.name)
			if shell.name == "bash" && err == nil {
				_, err = os.Stat("/usr/share/bash-completion/bash_completion")
			}
			if err != nil {
				t.Skip(err)
			}
			script := filepath.Join(dir, shell.name)
			out, err := exec.Command("ttmem", "completion", shell.name).Output()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(os.WriteFile(script, out, 0o644)))
			for line, wants := range map[string][]string{
				"ttmem at":                    {"attach"},
				"ttmem leaks --supp":          {"--suppress"},
				"ttmem dump --by comp":        {"component"},
				"ttmem report --color=a":      {"always", "auto"},
				"ttmem attach -p ":            {pid, "sleep 600"},
				"ttmem attach -p " + pid:      {pid},
				"ttmem top --pid " + pid:      {pid},
				"ttmem leaks --duration 1s -": {"--suppress", "--json"},
			} {
				cmd := exec.Command(shell.name, "-c", shell.script)
				cmd.Env = append(os.Environ(), "HOME="+dir, "script="+script, "line="+line)
				out, err := cmd.CombinedOutput()
				qt.Check(t, qt.IsNil(err), qt.Commentf("%s: %s", line, out))
				for _, want := range wants {
					if shell.name == "bash" && want == "sleep 600" {
						continue // it describes only if there are several
					}
					qt.Check(t, qt.StringContains(string(out), want), qt.Commentf("%s", line))
				}
				qt.Check(t, qt.Not(qt.StringContains(string(out), "`")))
				qt.Check(t, qt.IsTrue(strings.Count(string(out), "\n") < 60), qt.Commentf("%s: %s", line, out))
			}
		})
	}
}
