module ttmem

go 1.25
