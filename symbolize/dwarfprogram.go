package symbolize

// lineProgram runs the program that a line table is written as (DWARF 5, 6.2.5).
type lineProgram struct {
	d *debugInfo
	c *cursor
	t *lineTable

	minLength  uint64 // of an instruction
	lineBase   int64
	lineRange  int64
	opcodeBase uint8
	operands   [256]uint8 // how many numbers follow an opcode

	row   lineRow
	first int // where the sequence's rows begin
}

func (p *lineProgram) run() {
	if p.lineRange == 0 || p.opcodeBase == 0 {
		return
	}
	c := p.c
	p.reset()
	for c.more() && p.d.work(1) && len(p.t.rows) < maxLineRows {
		op := c.u8()
		if op >= p.opcodeBase { // a special opcode: both advance, then a row
			op -= p.opcodeBase
			p.row.addr += uint64(int64(op)/p.lineRange) * p.minLength
			p.row.line += uint32(p.lineBase + int64(op)%p.lineRange)
			p.add()
			continue
		}
		switch op {
		case 0:
			p.extended()
		case 1: // copy
			p.add()
		case 2: // advance_pc
			p.row.addr += c.uleb() * p.minLength
		case 3: // advance_line
			p.row.line += uint32(c.sleb())
		case 4: // set_file
			p.row.file = uint32(c.uleb())
		case 8: // const_add_pc
			p.row.addr += uint64((255-int64(p.opcodeBase))/p.lineRange) * p.minLength
		case 9: // fixed_advance_pc
			p.row.addr += c.uint(2)
		default: // columns, blocks, statements, and what is not known
			for range p.operands[op] {
				c.uleb()
			}
		}
	}
}

// extended runs an opcode that says how long it is.
func (p *lineProgram) extended() {
	c := p.c
	length := c.uleb()
	next := c.at + length
	if c.bad || length == 0 || length > c.end-c.at {
		c.bad = c.bad || length != 0
		return
	}
	switch c.u8() {
	case 1: // end_sequence
		p.endSequence()
		p.reset()
	case 2: // set_address
		p.row.addr = c.uint(length - 1)
	}
	c.at = next
}

func (p *lineProgram) reset() {
	p.row = lineRow{file: 1, line: 1}
	p.first = len(p.t.rows)
}

func (p *lineProgram) add() {
	rows := p.t.rows
	if n := len(rows); n > p.first && rows[n-1].addr == p.row.addr {
		rows[n-1] = p.row // of several rows for one address the last one counts
		return
	}
	p.t.rows = append(rows, p.row)
}

// endSequence keeps the rows since the last sequence, if they are of code that
// the linker took and in order.
func (p *lineProgram) endSequence() {
	rows := p.t.rows[p.first:]
	ok := len(rows) > 0 && rows[0].addr != 0 && p.d.text(rows[0].addr) && p.row.addr >= rows[len(rows)-1].addr
	for i := 1; ok && i < len(rows); i++ {
		ok = rows[i-1].addr <= rows[i].addr
	}
	if !ok {
		p.t.rows = p.t.rows[:p.first]
		return
	}
	p.t.sequences = append(p.t.sequences, lineSequence{
		rows[0].addr, p.row.addr, uint32(p.first), uint32(len(p.t.rows)),
	})
}
