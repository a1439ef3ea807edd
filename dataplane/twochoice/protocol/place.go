package protocol

import (
	"strconv"
	"strings"
)

// HomeOf returns the home of an object on this many agents. Stripe k of a file, the object
// "file/k", is at home k agents after the file's start. A hash of the file's name gives the start
// (round robin from a random start, as in section VI.B). Any other name is a file of one stripe.
func HomeOf(object string, nodes int) Node {
	file, stripe := object, uint64(0)
	if i := strings.LastIndexByte(object, '/'); i >= 0 {
		if k, err := strconv.ParseUint(object[i+1:], 10, 63); err == nil {
			file, stripe = object[:i], k
		}
	}
	hash := uint64(14695981039346656037) // FNV-1a
	for i := range len(file) {
		hash = (hash ^ uint64(file[i])) * 1099511628211
	}
	n := uint64(nodes)
	return Node((hash%n + stripe%n) % n)
}
