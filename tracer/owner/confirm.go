package owner

// looks is how often paths are read again: an object that moves meanwhile is where two looks in a
// row have seen it.
const looks = 4

// What is known of a node during the second look.
const (
	wanted    = 1 << iota // it is on a path to a target
	container             // and refers, or referred, to another one
	confirmed             // the reference that leads to it was read again
	visited               // it is known whether its whole path was
	truthful
)

// confirm reads the paths to the targets again, and returns the targets whose paths are still there.
func (w *walk) confirm() (found []uint32) {
	state := make([]uint8, w.nodes.n)
	left := w.targets
	for n := 0; n < looks && len(left) > 0 && w.err == nil; n++ {
		for i := range state {
			if state[i] &= confirmed | container; w.nodes.at(uint32(i)).kind == garbage {
				state[i] &^= confirmed
			}
		}
		moved := w.look(state, left)
		var lost []uint32
		for _, at := range left {
			// What moves can be missed by a look: two say that nothing with a name leads there.
			if w.isTrue(state, at) && (n > 0 || w.isNamed(at)) {
				found = append(found, at)
			} else {
				lost = append(lost, at)
			}
		}
		for at, now := range moved {
			if state[at]&confirmed == 0 {
				n := w.nodes.at(at)
				n.from, n.kind, n.ref = now.from, now.kind, now.ref
			}
		}
		left = lost
	}
	w.emit = w.reach
	return found
}

// look reads what leads to targets again. It returns other references to the nodes on the way.
func (w *walk) look(state []uint8, targets []uint32) (moved map[uint32]node) {
	collected := false
	for _, at := range targets {
		for at != noNode && state[at]&wanted == 0 {
			state[at] |= wanted
			n := w.nodes.at(at)
			if at = n.from; at != noNode {
				state[at] |= container
			} else if n.kind == garbage {
				collected = true
			}
		}
	}
	moved = make(map[uint32]node)
	w.emit = func(object uint64, s step, _ uint8) {
		at, known := w.nodes.find(object)
		if !known || state[at]&wanted == 0 {
			return
		}
		n := w.nodes.at(at)
		_, elsewhere := moved[at]
		switch {
		case n.from == w.from && n.kind == s.kind && n.ref == s.ref:
			if s.kind != garbage || !elsewhere {
				state[at] |= confirmed
			}
		case state[at]&confirmed == 0 && (n.kind != garbage || w.isNamed(w.from)):
			moved[at] = node{from: w.from, kind: s.kind, ref: s.ref}
		}
	}
	w.forget()
	w.from = noNode
	w.roots()
	for at := range uint32(len(state)) {
		if state[at]&container == 0 {
			continue
		}
		object := w.nodes.at(at).object
		if t := w.typeOf(w.word(object + 8)); t != nil {
			w.from = at
			w.references(object, t)
		}
	}
	if collected { // last: what was seen to have a name meanwhile is not without one
		w.from = noNode
		w.collected()
	}
	return moved
}

// isNamed reports whether the path to a node begins with a name.
func (w *walk) isNamed(at uint32) bool {
	for range maxSteps {
		if at == noNode {
			return true
		}
		n := w.nodes.at(at)
		if n.kind == garbage {
			return false
		}
		at = n.from
	}
	return false
}

// isTrue reports whether all references to a node were confirmed.
func (w *walk) isTrue(state []uint8, at uint32) bool {
	var path []uint32
	for at != noNode && state[at]&visited == 0 && state[at]&confirmed != 0 {
		state[at] |= visited
		path = append(path, at)
		at = w.nodes.at(at).from
	}
	is := at == noNode || state[at]&truthful != 0
	for _, at := range path {
		if is {
			state[at] |= truthful
		}
	}
	return is
}
