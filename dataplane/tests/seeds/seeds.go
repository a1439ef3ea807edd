// Package seeds gives fuzz tests random inputs, so that an ordinary test run tries them too.
package seeds

import (
	"math/rand/v2"
	"testing"
)

// Add adds n inputs of up to `most` bytes, the same in every run.
func Add(f *testing.F, n, most int) {
	f.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range n {
		input := make([]byte, random.IntN(most))
		for i := range input {
			input[i] = byte(random.Uint32())
		}
		f.Add(input)
	}
}
