package sim

// ring is a first-in-first-out queue in one slice with reused memory.
type ring[T any] struct {
	items []T // length is a power of two
	head  int
	n     int
}

func (r *ring[T]) push(item T) {
	if r.n == len(r.items) {
		r.grow()
	}
	r.items[(r.head+r.n)&(len(r.items)-1)] = item
	r.n++
}

// first returns the oldest item, to read or change in place; the ring must not be empty.
func (r *ring[T]) first() *T { return &r.items[r.head] }

func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.head]
	r.items[r.head] = none // let the item be collected
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
	return item
}

func (r *ring[T]) clear() {
	clear(r.items)
	r.head, r.n = 0, 0
}

func (r *ring[T]) grow() {
	items := make([]T, max(4, 2*len(r.items)))
	n := copy(items, r.items[r.head:])
	copy(items[n:], r.items[:r.head])
	r.items, r.head = items, 0
}
