package session

import (
	"cmp"
	"os"

	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
)

// Report makes a report from a file, and the files that flags name.
func Report(o *Options) error {
	if source.IsPrivate(o.Source.File) {
		output.KeepPrivate()
	}
	s, err := newSession(*o)
	if err != nil {
		return err
	}
	defer s.close()
	o.Source.StateOnly = s.export == nil && o.PID == 0
	w, err := o.Source.Watch(o.Source.Clocked(s.setClock, s.handle))
	if err != nil {
		return err
	}
	s.state.Begin(w.File.BeganNs)
	if s.export != nil {
		s.export.Options.Begun = w.File.Created
	}
	to := os.Stdout
	if o.exports.TakesStdout() {
		to = os.Stderr
	}
	err = s.end(w.EndNs, w.File.Stacks(), to, report.Options{PID: o.PID, Older: w.File.Older(), UTC: o.UTC})
	status := w.Finish(nil)
	if err == nil && s.failed {
		return term.ExitStatus(1)
	}
	return cmp.Or(err, status)
}
