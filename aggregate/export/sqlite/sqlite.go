// Package sqlite exports events as an SQLite database, for questions that no command answers.
// schema.sql describes its tables.
//
// The database is made in a temporary file, beside which memory is needed for the ids of live
// buffers, of programs and of call stacks. A million events take 10 s.
// It is not part of ttmem's Go library: it changes without notice.
package sqlite

import (
	"database/sql"
	_ "embed"
	"io"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // registers the driver

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/place"
)

// schemaVersion changes when a column gets another name or meaning.
const schemaVersion = 1

//go:embed schema.sql
var schema string

// indices are made at the end, which is faster than with every row.
//
//go:embed indices.sql
var indices string

// pragmas make writing fast: a database that is not finished is not used.
const pragmas = `
	PRAGMA journal_mode = OFF;
	PRAGMA synchronous = OFF;
	PRAGMA locking_mode = EXCLUSIVE;
	PRAGMA cache_size = -16384;`

// A Writer makes a database of events.
type Writer struct {
	out  io.Writer
	wall func(ns uint64) int64
	file *os.File // the database, without a name: nothing is left when this process ends
	db   *sql.DB
	tx   *sql.Tx
	err  error // the first one: after it nothing is written

	state *aggregate.State // nil before the first event
	first uint64           // the time of the first event
	ids                    // of the rows
}

// New returns a Writer of a database, which Close writes to out. wall returns a time of
// CLOCK_MONOTONIC by the wall clock, in ns since 1970; 0 if not known.
func New(out io.Writer, wall func(ns uint64) int64) (*Writer, error) {
	w := &Writer{out: out, wall: wall, ids: newIDs()}
	if err := w.begin(); err != nil {
		w.discard()
		return nil, err
	}
	return w, nil
}

func (w *Writer) begin() (err error) {
	if w.file, err = place.Temporary("ttmem-sqlite-"); err != nil {
		return err
	}
	defer os.Remove(w.file.Name())
	if w.db, err = sql.Open("sqlite", "file:"+url.PathEscape(w.file.Name())); err != nil {
		return err
	}
	w.db.SetMaxOpenConns(1)
	if _, err := w.db.Exec(pragmas + schema); err != nil {
		return err
	}
	w.tx, err = w.db.Begin()
	return err
}

// Event adds an event, after the State has applied it. State.Completed calls it with all that is
// needed.
func (w *Writer) Event(e *event.Event, s *aggregate.State) {
	if w.state == nil {
		w.state = s
		w.first = e.TimeNs
	}
	if e.Kind == event.Checkpoint {
		w.addExisting()
		return
	}
	w.add(e)
}

// Close writes the database.
func (w *Writer) Close() error {
	defer w.discard()
	if w.state != nil {
		w.addResult()
	}
	if w.err != nil {
		return w.err
	}
	if err := w.tx.Commit(); err != nil {
		return err
	}
	if _, err := w.db.Exec(indices); err != nil {
		return err
	}
	if err := w.db.Close(); err != nil {
		return err
	}
	_, err := io.Copy(w.out, w.file)
	return err
}

// discard frees the temporary file.
func (w *Writer) discard() {
	if w.db != nil {
		_ = w.db.Close()
	}
	if w.file != nil {
		_ = w.file.Close()
	}
}

// exec runs a statement with parameters.
func (w *Writer) exec(statement string, values ...any) {
	if w.err != nil {
		return
	}
	stmt := w.statements[statement]
	if stmt == nil {
		if stmt, w.err = w.tx.Prepare(statement); w.err != nil {
			return
		}
		w.statements[statement] = stmt
	}
	_, w.err = stmt.Exec(values...)
}
