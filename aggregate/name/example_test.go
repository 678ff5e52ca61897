package name_test

import (
	"fmt"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A call site is named by its operation and the innermost line of the user's own code.
func ExampleOf() {
	of := name.Of([]event.Frame{
		{Kind: event.Native, Name: "func_create<ttnn.matmul>", Module: "_ttnn.so"},
		{Kind: event.Python, Name: "__call__", File: "/venv/lib/python3.12/site-packages/ttnn/decorators.py", Line: 1245},
		{Kind: event.Python, Name: "forward", File: "/srv/model.py", Line: 31},
	})
	fmt.Println(of)
	fmt.Println(of.Op, of.Call.File, of.Call.Line)
	// Output:
	// model.py:31 forward · ttnn.matmul
	// ttnn.matmul /srv/model.py 31
}
