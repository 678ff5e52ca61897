package visualizer

import (
	"database/sql"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"

	_ "modernc.org/sqlite" // the driver, in Go alone: the binary stays static

	"ttmem/tracer/place"
)

// A database is written in one transaction to a temporary file, whose folder other users cannot
// change: SQLite opens files by name.
type database struct {
	file *os.File // has no name any more
	db   *sql.DB
	tx   *sql.Tx
	to   map[string]*sql.Stmt // by table
	err  error                // the first one
}

// newDatabase creates a database with the tables of a report.
func newDatabase() (_ *database, err error) {
	d := &database{to: make(map[string]*sql.Stmt)}
	if d.file, err = place.Temporary("ttmem-visualizer-"); err != nil {
		return nil, err
	}
	defer os.Remove(d.file.Name())
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	// A report that is not complete is removed, so that no change has to be undone.
	d.db, err = sql.Open("sqlite", "file:"+url.PathEscape(d.file.Name())+"?_pragma=journal_mode(off)&_pragma=synchronous(off)")
	if err != nil {
		return nil, err
	}
	d.db.SetMaxOpenConns(1)
	if d.tx, err = d.db.Begin(); err == nil {
		_, err = d.tx.Exec(schema)
	}
	return d, err
}

// discard frees the temporary file.
func (d *database) discard() {
	if d.db != nil {
		_ = d.db.Close()
	}
	_ = d.file.Close()
}

// insert inserts a row with all values of a table. After an error it does nothing.
func (d *database) insert(table string, values ...any) {
	if d.err != nil {
		return
	}
	s := d.to[table]
	if s == nil {
		s, d.err = d.tx.Prepare("INSERT INTO " + table + " VALUES (?" + strings.Repeat(",?", len(values)-1) + ")")
		if d.err != nil {
			return
		}
		d.to[table] = s
	}
	for i, v := range values {
		if n, ok := v.(uint64); ok {
			values[i] = int64(n) // SQLite has no larger numbers
		}
	}
	_, d.err = s.Exec(values...)
}

// indexes are for the pages, which ask for one operation at a time.
const indexes = `
	CREATE INDEX buffers_of ON buffers (operation_id);
	CREATE INDEX chunks_of ON buffer_chunks (operation_id);
	CREATE INDEX idx_stack_traces_source_file_id ON stack_traces (source_file_id);`

// writeTo completes the database, writes it to a file, and returns the first error.
func (d *database) writeTo(out io.Writer) error {
	defer d.discard()
	if d.err == nil {
		_, d.err = d.tx.Exec(indexes)
	}
	if d.err == nil {
		d.err = d.tx.Commit()
	}
	if err := errors.Join(d.err, d.db.Close()); err != nil {
		return err
	}
	_, err := io.Copy(out, d.file)
	return err
}
