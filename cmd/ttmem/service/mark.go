package service

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"ttmem/tracer/event"
)

// maxMark is the maximum length of the name of a mark, in characters.
const maxMark = 128

// maxMarks is how many marks a user may set in a second; root has no limit. A test sets two, and
// several tests run at a time.
const maxMarks = 1000

// mark sets a mark for a viewer who may see events.
func (s *Server) mark(w http.ResponseWriter, r *http.Request, v Viewer) {
	if v == Nobody || v == TokenHolder {
		http.Error(w, "ttmem: marks are accepted over the unix socket only, which identifies the user", http.StatusForbidden)
		return
	}
	name, err := markName(r.URL.RawQuery)
	if err != nil {
		http.Error(w, "ttmem: "+err.Error(), http.StatusBadRequest)
		return
	}
	c := clientOf(r.Context(), v)
	if !v.All && !s.marks.allow(c, time.Now()) {
		busy(w, fmt.Sprintf("too many marks: a user may set %d a second", maxMarks))
		return
	}
	s.marked.Add(1) // before it can be applied
	if err := s.o.Mark(name, v, c.uid); err != nil {
		s.marked.Add(^uint64(0))
		http.Error(w, "ttmem: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func markName(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil || len(values["name"]) != 1 {
		return "", errors.New("a mark needs a name: POST /v1/mark?name=NAME")
	}
	name := values.Get("name")
	return name, CheckMark(name)
}

// CheckMark returns an error if a text cannot be the name of a mark.
func CheckMark(name string) error {
	n := utf8.RuneCountInString(name)
	if n < 1 || n > maxMark {
		return fmt.Errorf("the name of a mark has 1 to %d characters, not %d", maxMark, n)
	}
	if event.Printable(name) != name {
		return errors.New("the name of a mark must consist of printable characters")
	}
	return nil
}

// A rate bounds how often clients do something.
type rate struct{ tally }

// allow reports whether the client may do it once more in this second.
func (r *rate) allow(c client, now time.Time) bool { return r.add(c, 1, time.Second, now) <= maxMarks }
