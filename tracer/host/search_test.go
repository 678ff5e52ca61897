package host

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

const testSearcher = "ttmem-test-search"

// The child of these tests answers with the file that it got; a question of "wait" makes it wait for
// its parent to end, and one of "long" makes it say too much.
func init() {
	if len(os.Args) != 1 || os.Args[0] != testSearcher {
		return
	}
	question := make([]byte, 4)
	_, _ = io.ReadFull(os.Stdin, question)
	switch string(question) {
	case "wait":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "long":
		_, _ = os.Stdout.WriteString(strings.Repeat("x", 1000))
	default:
		_, _ = io.Copy(os.Stdout, os.NewFile(3, "file"))
		_, _ = os.Stdout.WriteString(strconv.Itoa(os.Getpid()))
	}
	os.Exit(0)
}

// A search answers with the files that it is given. One that does not answer is given up with its
// child, and its user may read again.
func TestSearch(t *testing.T) {
	r := NewReaders()
	defer r.Close()
	self := r.Of(os.Getpid())
	file, err := os.Open("/proc/self/comm")
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	files := []*os.File{file}

	answer, err := self.Search(t.Context(), testSearcher, files, []byte("read"), ReadPatience, 100)
	qt.Assert(t, qt.IsNil(err))
	name, pid, _ := strings.Cut(string(answer), "\n")
	qt.Check(t, qt.Not(qt.Equals(name, "")))
	qt.Check(t, qt.Not(qt.Equals(pid, strconv.Itoa(os.Getpid()))))

	_, err = self.Search(t.Context(), testSearcher, files, []byte("long"), ReadPatience, 100)
	qt.Check(t, qt.ErrorIs(err, ErrTooLong))

	_, err = self.Search(t.Context(), testSearcher, files, []byte("wait"), 100*time.Millisecond, 100)
	qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	_, err = self.Search(ctx, testSearcher, files, []byte("wait"), time.Hour, 100)
	qt.Check(t, qt.ErrorIs(err, context.Canceled))

	for range readersPerUser { // none is left that counts for the user
		qt.Check(t, qt.IsNil(r.share(t.Context(), self.User, ReadPatience)))
	}
}
