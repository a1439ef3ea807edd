package nfsproxy

import (
	"math/bits"
	"time"

	"hotbed/dataplane/internal/nfs3"
)

// turns sums, by kind and size, how long the server worked on requests (enforcer.Service). A
// profile made from these measurements should charge the same. Sizes up to the same power of two
// share a class.
type turns [2][sizeClasses]struct {
	calls uint64
	spent time.Duration
}

// sizeClasses is enough for requests of 1 GiB.
const sizeClasses = 31

func (t *turns) add(kind nfs3.Kind, size int, spent time.Duration) {
	if kind != nfs3.Read && kind != nfs3.Write {
		return
	}
	class := min(bits.Len(uint(max(size, 1)-1)), sizeClasses-1)
	one := &t[kindRow(kind)][class]
	one.calls++
	one.spent += spent
}

func kindRow(kind nfs3.Kind) int {
	if kind == nfs3.Write {
		return 1
	}
	return 0
}

// TurnStatus gives the time of requests of one kind with sizes in (Most/2, Most].
type TurnStatus struct {
	Kind    string  `json:"kind"`
	Most    int     `json:"most_bytes"`
	Calls   uint64  `json:"calls"`
	Seconds float64 `json:"seconds"`
}

func (t *turns) status() []TurnStatus {
	made := []TurnStatus{}
	for _, kind := range []nfs3.Kind{nfs3.Read, nfs3.Write} {
		for class, one := range t[kindRow(kind)] {
			if one.calls > 0 {
				made = append(made, TurnStatus{kinds[kind], 1 << class, one.calls, one.spent.Seconds()})
			}
		}
	}
	return made
}
