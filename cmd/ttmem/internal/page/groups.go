package page

// Groups are values by key, in the order of their keys' first use. The zero value is empty.
type Groups[K comparable, T any] struct {
	List []*T
	at   map[K]*T
}

// Of returns the value of a key; found is false if it is a new one, the zero value.
func (g *Groups[K, T]) Of(key K) (value *T, found bool) {
	if value, found = g.at[key]; found {
		return value, true
	}
	if g.at == nil {
		g.at = make(map[K]*T)
	}
	value = new(T)
	g.at[key], g.List = value, append(g.List, value)
	return value, false
}
