package session

import (
	"cmp"
	"fmt"
	"os"

	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
)

// Report makes a report from a file, and the files that flags name.
func Report(o *Options) error {
	// before anything is opened for writing
	if err := o.checkOutputs(); err != nil {
		return err
	}
	if source.IsPrivate(o.Source.File) {
		output.KeepPrivate()
	}
	s, err := newSession(*o)
	if err != nil {
		return err
	}
	defer s.close()
	o.Source.StateOnly = s.export == nil && o.PID == 0
	w, err := o.Source.Watch(s.handle)
	if err != nil {
		return err
	}
	s.state.Begin(w.File.BeganNs)
	if s.export != nil {
		s.export.Options.Begun = w.File.Created
	}
	to := os.Stdout
	if o.takesStdout() {
		to = os.Stderr
	}
	err = s.end(w.EndNs, w.File.Stacks(), to, report.Options{
		PID: o.PID, Older: w.File.Older(), UTC: o.UTC, Clock: o.Source.Clock(),
	})
	status := w.Finish(nil)
	if err == nil && s.failed {
		return term.ExitStatus(1)
	}
	return cmp.Or(err, status)
}

// checkOutputs returns an error if an output is the input file, under any name.
func (o *Options) checkOutputs() error {
	path := o.Source.File
	in, err := os.Stat(path)
	if err != nil || !in.Mode().IsRegular() {
		return nil
	}
	if out, err := os.Stdout.Stat(); err == nil && os.SameFile(in, out) {
		return fmt.Errorf("standard output is %s, the file that is read: write to another", path)
	}
	if t := o.targetOf(in); t != nil {
		return fmt.Errorf("%s %s is the file that is read: name another", t.Flag, t.Path)
	}
	return nil
}

// takesStdout reports whether a flag names standard output.
func (o *Options) takesStdout() bool {
	out, err := os.Stdout.Stat()
	return err == nil && o.targetOf(out) != nil
}

// targetOf returns the target that is a file, under any name; nil if none is.
func (o *Options) targetOf(file os.FileInfo) *output.ExportTarget {
	for _, t := range o.exports.Targets() {
		if output.Names(t.Path, file) {
			return &t
		}
	}
	return nil
}
