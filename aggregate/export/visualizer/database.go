package visualizer

import (
	"database/sql"
	"errors"
	"os"
	"strings"

	_ "modernc.org/sqlite" // the driver, in Go alone: the binary stays static
)

// A database is a new file of SQLite that is written in one transaction.
type database struct {
	db  *sql.DB
	tx  *sql.Tx
	to  map[string]*sql.Stmt // by table
	err error                // the first one
}

// newDatabase creates a database with the tables of a report.
func newDatabase(path string) (*database, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	f.Close()
	// A report that is not complete is removed, so that no change has to be undone.
	db, err := sql.Open("sqlite", "file:"+escape.Replace(path)+"?_pragma=journal_mode(off)&_pragma=synchronous(off)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	d := &database{db: db, to: make(map[string]*sql.Stmt)}
	if d.tx, err = db.Begin(); err == nil {
		_, err = d.tx.Exec(schema)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return d, nil
}

// escape replaces the characters that end the path of a URI.
var escape = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23")

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

// close completes the file, and returns the first error.
func (d *database) close() error {
	if d.err == nil {
		_, d.err = d.tx.Exec(indexes)
	}
	if d.err == nil {
		d.err = d.tx.Commit()
	}
	return errors.Join(d.err, d.db.Close())
}
