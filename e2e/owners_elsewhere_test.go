package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
)

// checkOwnersElsewhere checks the owners of a recording in the database for sqlite3, and on the page
// in Chromium.
func checkOwnersElsewhere(t *testing.T, recording string, addresses map[string]uint64, tensors map[string]string) {
	t.Helper()
	dir := t.TempDir()
	database, page := filepath.Join(dir, "owners.db"), filepath.Join(dir, "owners.html")
	ask(t, "export", recording, "--to", "sqlite", "-o", database)
	text, err := exec.Command("sqlite3", "-json", database, "SELECT owner, tensor, address FROM buffers WHERE owner IS NOT NULL").Output()
	qt.Assert(t, qt.IsNil(err))
	var rows []struct {
		Owner, Tensor string
		Address       uint64
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &rows)))
	qt.Check(t, qt.HasLen(rows, len(addresses)))
	want := make(map[string]bool) // as the page adds them up
	for _, row := range rows {
		qt.Check(t, qt.Equals(row.Address, addresses[row.Owner]))
		qt.Check(t, qt.Equals(row.Tensor, tensors[row.Owner]))
		want[regexp.MustCompile(`\[\d\]`).ReplaceAllString(row.Owner, "[*]")+" · "+row.Tensor] = true
	}

	ask(t, "html", recording, "-o", page)
	b := browser.New(t, 1280, 900)
	b.Open(page)
	b.Press("2")
	b.Choose("by", "owner")
	got := make(map[string]bool)
	for _, region := range []string{"DRAM", "L1"} {
		b.Choose("region", region)
		b.Eval("(document.getElementById('whole').click(), true)", new(bool))
		b.Settle()
		var held []string
		b.Eval(`[...document.querySelectorAll('#siteTable tbody tr')].map(row => [...row.lastElementChild.children].slice(0, 2).map(e => e.textContent).join(" · "))`, &held)
		for _, one := range held {
			got[one] = true
		}
	}
	for one := range want {
		qt.Check(t, qt.IsTrue(got[one]), qt.Commentf("%s in %v", one, got))
	}
	b.Screenshot("owners")
	b.CheckQuiet()
}
