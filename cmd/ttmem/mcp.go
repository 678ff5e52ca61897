package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
)

// A tool is a command that agents may call. Its inputs are some arguments and flags of the command, its description
// and theirs are those of the command's help, and its answer is what the command prints.
type tool struct {
	command string
	args    []string // inputs that are the command's arguments, in order
	// flags are inputs that are flags. None of them writes a file, reads one that is no recording, or traces.
	flags []string
}

// arguments are the descriptions of inputs that are arguments.
var arguments = map[string]string{
	"file":  "a recording of ttmem run, or live: what the host's service sees now",
	"other": "another recording",
	"third": "a third recording",
	"page":  "a command, or a page such as docs/leaks.md; topics lists the pages",
}

const live = "live" // in place of a recording

var tools = []tool{
	{"report", []string{"file"}, []string{"pid", "json"}},
	{"leaks", []string{"file"}, []string{"from", "to", "within", "by", "chip", "region", "limit", "pid", "duration", "json"}},
	{"peak", []string{"file"}, []string{"from", "to", "within", "by", "chip", "region", "limit", "pid", "duration", "json"}},
	{"oom", []string{"file"}, []string{"without", "move", "first", "free", "set", "clear-program-cache-at", "on", "limit", "pid", "json"}},
	{"ops", []string{"file"}, []string{"from", "to", "within", "limit", "pid", "json"}},
	{"dump", []string{"file"}, []string{"at", "from", "to", "within", "by", "chip", "region", "grep", "limit", "pid", "json"}},
	{"diff", []string{"file", "other"}, []string{"at", "from", "to", "within", "by", "region", "grep", "limit", "pid", "json"}},
	{"advise", []string{"file"}, []string{"limit", "pid", "json"}},
	{"fit", []string{"file", "other", "third"}, []string{"param", "on", "limit", "json"}},
	{"help", []string{"page"}, nil},
}

// narrowing are the inputs that make an answer shorter.
var narrowing = []string{"limit", "by", "region", "chip", "grep", "within", "pid"}

// watchTime is how long running processes are watched unless an agent says so.
const watchTime = "10s"

// instructions tell an agent how to begin.
const instructions = "ttmem shows what uses the memory of Tenstorrent devices, by line of Python or C++. Record a program in a shell: " +
	"`ttmem run -o model.ttmem -- python model.py`. Then report has the verdict, and the other tools explain it: leaks, peak, " +
	"oom (failures), ops, dump, diff, advise, fit. oom also answers what-ifs: it replays a recording with changes (inputs without, " +
	"free, move, first, set, on) and proves their effect. Texts name the flags of the command line: -n is limit, -p is pid. Tools only read."

func newMCP() *cobra.Command {
	c := &cobra.Command{
		Use:    "mcp [FILE]",
		Hidden: true, // the list of commands fits a terminal without it, and agents start it
		Short:  "Answer the questions of an agent (Model Context Protocol)",
		Long: `Serves the Model Context Protocol on standard input and output: an agent that starts it can ask what
report, leaks, peak, oom, ops, dump, diff, advise and fit show. It only reads.

FILE is the recording that calls are about if they name none; without FILE, that is the host's
service (ttmem serve). docs/mcp.md says how to add it to agents.`,
		Example: `  claude mcp add ttmem -- ttmem mcp
  ttmem mcp model.ttmem`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("mcp takes one file: calls may name others")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if term.IsTerminal(os.Stdin) {
				term.Warn("an agent starts this command and talks to it: `ttmem mcp --help` shows how to add it; Ctrl-C ends")
			}
			s := toolServer{root: c.Root(), file: live}
			if len(args) > 0 {
				s.file = args[0]
			}
			s.socket, _ = flags.SocketOf(c)
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			defer stop()
			if err := s.server(ctx).Run(ctx, &mcp.StdioTransport{}); err != nil && ctx.Err() == nil {
				return fmt.Errorf("talking to the agent: %w", err)
			}
			return nil
		},
		ValidArgsFunction: source.CompleteRecordings,
	}
	flags.Takes(c, flags.Socket)
	return c
}

// A toolServer runs the commands that an agent asks for.
type toolServer struct {
	root *cobra.Command
	// file is the recording of calls that name none, or live.
	file, socket string
	// turns bounds the commands that run at the same time.
	turns chan struct{}
}

// server returns a server with all tools, whose calls end when the context is done.
func (s *toolServer) server(ctx context.Context) *mcp.Server {
	s.turns = make(chan struct{}, 4)
	protocol := mcp.NewServer(&mcp.Implementation{Name: "ttmem", Title: "ttmem", Version: buildVersion()},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	outside := false            // everything is on this host
	s.root.InitDefaultHelpCmd() // which cobra adds when it executes
	for i := range tools {
		t := &tools[i]
		c := t.of(s.root)
		protocol.AddTool(&mcp.Tool{
			Name: t.command, Title: c.Short, Description: t.description(c), InputSchema: t.schema(c, s.file),
			Annotations: &mcp.ToolAnnotations{Title: c.Short, ReadOnlyHint: true, OpenWorldHint: &outside},
		}, func(asked context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			asked, end := context.WithCancel(asked)
			defer end()
			defer context.AfterFunc(ctx, end)()
			args, err := s.commandLine(t, r.Params.Arguments)
			if err != nil {
				return answer(true, err.Error()), nil
			}
			return s.run(asked, t, args), nil
		})
	}
	return protocol
}

// of returns the tool's command.
func (t *tool) of(root *cobra.Command) *cobra.Command {
	c, _, err := root.Find([]string{t.command})
	if err != nil {
		panic(err) // a test looks for each
	}
	return c
}

// description returns the help of the command without its paragraph about FILE, which is an input with a description of
// its own.
func (t *tool) description(c *cobra.Command) string {
	paragraphs := slices.DeleteFunc(strings.Split(c.Long, "\n\n"), func(p string) bool { return strings.HasPrefix(p, "FILE ") })
	return strings.ReplaceAll(strings.Join(paragraphs, "\n\n"), "Flags ", "Inputs ")
}

// inputs are the names of all inputs.
func (t *tool) inputs() []string { return slices.Concat(t.args, t.flags) }

// schema declares the inputs in JSON Schema.
func (t *tool) schema(c *cobra.Command, file string) map[string]any {
	inputs := make(map[string]any)
	for _, name := range t.args {
		input := map[string]any{"type": "string", "description": arguments[name]}
		if name == "file" {
			input["default"] = file
		}
		inputs[name] = input
	}
	for _, name := range t.flags {
		f := c.Flag(name)
		usage, _, _ := strings.Cut(strings.ReplaceAll(f.Usage, "`", ""), " (default")
		input := map[string]any{"description": usage}
		switch kind := f.Value.Type(); kind {
		case "bool":
			input["type"] = "boolean"
		case "int":
			input["type"] = "integer"
		case "intSlice":
			input["type"], input["items"] = "array", map[string]any{"type": "integer"}
		case "stringSlice", "stringArray", "func":
			input["type"], input["items"] = "array", map[string]any{"type": "string"}
		default:
			input["type"] = "string"
		}
		if name == "duration" {
			input["default"] = watchTime
		}
		inputs[name] = input
	}
	return map[string]any{"type": "object", "properties": inputs, "additionalProperties": false}
}
