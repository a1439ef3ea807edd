package sim

import (
	"math"
	"testing"
)

func TestLogNormalFactors(t *testing.T) {
	for _, cv := range []float64{0, 0.1, 1, 2} {
		l, err := NewLogNormal(cv)
		if err != nil {
			t.Fatal(err)
		}
		s := NewStream(1, "test")
		const n = 400_000
		sum, squares := 0.0, 0.0
		for range n {
			x := l.Factor(s)
			if !(x > 0) {
				t.Fatalf("a factor of %g", x)
			}
			sum += x
			squares += x * x
		}
		mean := sum / n
		deviation := math.Sqrt(squares/n - mean*mean)
		if math.Abs(mean-1) > 0.01 || math.Abs(deviation-cv) > 0.06*cv {
			t.Errorf("cv %g: mean %g, deviation %g", cv, mean, deviation)
		}
	}
	for _, cv := range []float64{-1, 11, math.NaN()} {
		if _, err := NewLogNormal(cv); err == nil {
			t.Errorf("cv %g was allowed", cv)
		}
	}
}
