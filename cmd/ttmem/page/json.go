package page

import (
	"bufio"
	"encoding/json"
	"io"
)

func JSON(w io.Writer, doc any) error {
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(doc); err != nil {
		return err
	}
	return out.Flush()
}
