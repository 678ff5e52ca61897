package symbolize

// recent remembers what was asked for not long ago, within a limit. It has two
// halves: when the younger one is full the older one is forgotten and the
// younger becomes it. What is asked for again moves to the younger half.
type recent[K comparable, V any] struct {
	limit      int // of the costs of one half
	cost       int // of the younger half
	young, old map[K]priced[V]
}

type priced[V any] struct {
	value V
	cost  int
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	p, ok := r.young[key]
	if ok {
		return p.value, true
	}
	if p, ok = r.old[key]; ok {
		r.put(key, p.value, p.cost)
	}
	return p.value, ok
}

func (r *recent[K, V]) put(key K, value V, cost int) {
	if r.cost+cost > r.limit || r.young == nil {
		r.old, r.young, r.cost = r.young, map[K]priced[V]{}, 0
	}
	r.young[key] = priced[V]{value, cost}
	r.cost += cost
}

func (r *recent[K, V]) drop() { r.young, r.old, r.cost = nil, nil, 0 }
