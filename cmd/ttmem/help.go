package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/docs"
)

// topics lists the pages of the documentation.
const topics = "topics"

// newHelp returns the command help, which fails for an unknown command or page.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | PAGE]",
		Short: "Show help for a command, or a page of the documentation",
		Long:  "Shows the help of a command, a page of the documentation or, without an argument, the list of commands.",
		Example: `  ttmem help run
  ttmem help topics         the pages of the documentation
  ttmem help stacks
  ttmem help docs/leaks.md  a page with the name of a command`,
		Args: func(c *cobra.Command, args []string) error {
			if _, ok := pageOf(c.Root(), args); ok {
				return nil
			}
			found, rest, err := c.Root().Find(args)
			switch {
			case err != nil || found == c.Root() && len(rest) > 0:
				return unknownCommand(c.Root(), args)
			case len(rest) > 0:
				return fmt.Errorf("help takes one command: ttmem help %s", strings.TrimPrefix(found.CommandPath(), "ttmem "))
			}
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
			if found, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range found.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			if len(args) == 0 {
				pages, titles := docs.Pages()
				for i, page := range pages {
					if page = "docs/" + page + ".md"; strings.HasPrefix(page, begun) {
						names = append(names, cobra.CompletionWithDesc(page, titles[i]))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if text, ok := pageOf(c.Root(), args); ok {
				_, err := io.WriteString(c.OutOrStdout(), text)
				return err
			}
			found, _, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			found.InitDefaultHelpFlag() // so that the text lists it
			return found.Help()
		},
	}
}

// pageOf returns the page of the documentation that arguments name, or the list of pages. A command comes before a
// page of the same name.
func pageOf(root *cobra.Command, args []string) (text string, ok bool) {
	if len(args) != 1 {
		return "", false
	}
	if found, _, err := root.Find(args); err == nil && found != root {
		return "", false
	}
	if args[0] != topics {
		return docs.Page(args[0])
	}
	names, titles := docs.Pages()
	for i, name := range names {
		text += fmt.Sprintf("  docs/%-17s %s\n", name+".md", titles[i])
	}
	return "Pages of the documentation, as in ttmem help docs/leaks.md:\n" + text, true
}

// addCompletion adds the command that writes shell completions. It fails for an unknown shell.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil || c == root {
		return
	}
	c.Hidden = true // the list of commands fits a terminal without it, and `make install` runs it
	c.Use = "completion SHELL"
	c.Short = "Print completions for a shell"
	c.Long = "Prints a script that completes ttmem's commands, flags and files in a shell.\n`make install` and the packages install it. That of bash needs the package bash-completion."
	c.Example = "  source <(ttmem completion bash)       in this shell\n  ttmem completion zsh > ~/.zfunc/_ttmem"
	c.Args = cobra.ArbitraryArgs
	for _, shell := range c.Commands() {
		shell.Args = noArgument
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		known := strings.Join(page.Each(c.Commands(), (*cobra.Command).Name), ", ")
		if len(args) == 0 {
			return fmt.Errorf("missing shell: choose %s", known)
		}
		return fmt.Errorf("no completions for %s: choose %s", args[0], known)
	}
}

// unquoteUsage removes the quotes around the names of flags' values, which shells would show.
func unquoteUsage(c *cobra.Command) {
	for _, list := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		list.VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
	for _, sub := range c.Commands() {
		unquoteUsage(sub)
	}
}

func noArgument(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument: leave out %s", c.CommandPath(), args[0])
	}
	return nil
}

// unknownCommand returns an error that suggests a command for the first argument that is not a
// flag.
func unknownCommand(root *cobra.Command, args []string) error {
	name := args[slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })]
	if name == "" {
		return errors.New("the argument is empty: a shell variable may be unset; `ttmem help` lists the commands")
	}
	if _, _, err := root.Find(args); err != nil { // Find leaves out the values of flags
		_, _ = fmt.Sscanf(err.Error(), "unknown command %q", &name)
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a command: `ttmem report %s` shows a recording, `ttmem run -- %s` runs a program", name, name, name)
	}
	root.SuggestionsMinimumDistance = 2
	if like := root.SuggestionsFor(name); len(like) > 0 {
		return fmt.Errorf("unknown command %s: did you mean ttmem %s?", name, strings.Join(like, " or ttmem "))
	}
	if strings.ContainsAny(name, "./") {
		return fmt.Errorf("there is no file %s, and no such command; `ttmem help` lists the commands", name)
	}
	if _, err := exec.LookPath(name); err == nil {
		return fmt.Errorf("%s is not a ttmem command: `ttmem run -- %s` traces a program", name, strings.Join(args[slices.Index(args, name):], " "))
	}
	return fmt.Errorf("unknown command %s; `ttmem help` lists the commands", name)
}

// usage is the template of help: examples come before flags.
const usage = `Usage:
{{- if .Runnable}}
  {{.UseLine}}{{end}}
{{- if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND [--help]{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Flags:
{{flagsOf . | trimTrailingWhitespaces}}
`

// help is the template of the help of commands and, without a command, of the list of commands,
// which fits a terminal of 24 rows.
const help = `{{if .HasParent}}{{wrapped (or .Long .Short)}}

{{.UsageString}}{{else}}{{range $group := .Groups}}{{.Title}}
{{- range $.Commands}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{end}}`

// helpColumns is the width of help: that of a terminal.
const helpColumns = 80

func setUsage(root *cobra.Command) {
	cobra.AddTemplateFunc("flagsOf", flagsOf)
	cobra.AddTemplateFunc("wrapped", wrapped)
	root.SetHelpTemplate(help)
	root.SetUsageTemplate(usage)
}

// wrapped fits the paragraphs of a text to the width of help, except indented ones.
func wrapped(text string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, "\t") {
			paragraphs[i] = strings.Join(page.Wrap(p, helpColumns), "\n")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// flagsOf lists the flags of a command, including the global flags that it takes.
func flagsOf(c *cobra.Command) string {
	list := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	add := func(f *pflag.Flag) {
		if f.NoOptDefVal == "" || f.Value.Type() == "bool" {
			list.AddFlag(f)
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		list.Bool(fmt.Sprintf("%s[=%s]", f.Name, value), false, usage) // as in git's manual
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if flags.TakesGlobal(c, f.Name) {
			add(f)
		}
	})
	return list.FlagUsagesWrapped(helpColumns)
}

// newMan returns the command with which `make install` writes the manual.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command to a folder",
		Hidden: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("missing folder: ttmem man /usr/local/share/man/man1")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true // it has the date, and the pages should be reproducible
			return writeManual(root, args[0])
		},
	}
}

// writeManual writes the pages of a command and its subcommands, with the flags that each takes. A command with
// examples has one, though the list of commands omits it.
func writeManual(c *cobra.Command, dir string) error {
	if c.Hidden && !c.HasExample() {
		return nil
	}
	for _, sub := range c.Commands() {
		if err := writeManual(sub, dir); err != nil {
			return err
		}
	}
	root := c.Root()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = c != root && !flags.TakesGlobal(c, f.Name) })
	f, err := output.Create("man", filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
	if err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "ttmem " + buildVersion(), Manual: "ttmem"}
	return f.Finish(doc.GenMan(c, header, f.W))
}
