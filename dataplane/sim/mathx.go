package sim

import "math"

// The logarithm and the exponential below use only additions, multiplications, divisions and
// scaling by powers of two, each rounded separately. Explicit conversions keep a compiler from
// fusing a product into a sum. IEEE 754 defines all these operations, so the bits are equal on all
// machines. The standard library's are not (some machines use assembly). Both are within 2 units in
// the last place, as tests check.

const (
	ln2High = 6.93147180369123816490e-01 // the upper 33 bits of ln 2: exact times any exponent
	ln2Low  = 1.90821492927058770002e-10
)

// atanhTerms holds 1/(2k+1) for k = 1 to 10, and expTerms 1/k! for k = 13 down to 2.
var (
	atanhTerms = [...]float64{1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17,
		1. / 19, 1. / 21}
	expTerms = [...]float64{1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
		1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2}
)

// ln returns the natural logarithm of a positive, finite x: with x = m * 2^e and m near 1, ln m = 2
// atanh s, s = (m-1)/(m+1), |s| < 0.172.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	square := s * s
	sum := 0.0
	for i := len(atanhTerms) - 1; i >= 0; i-- {
		sum = atanhTerms[i] + float64(square*sum)
	}
	// s^3 * sum is small against s, and both against a multiple of ln 2: add the smallest first.
	tail := float64(float64(2*s) * float64(square*sum))
	return float64(float64(e)*ln2High) + (float64(2*s) + (tail + float64(float64(e)*ln2Low)))
}

// exp returns e to the x, for -700 <= x <= 700.
func exp(x float64) float64 {
	n := math.Floor(float64(x/math.Ln2) + 0.5)
	r := (x - float64(n*ln2High)) - float64(n*ln2Low)
	sum := 0.0
	for _, term := range expTerms {
		sum = term + float64(r*sum)
	}
	return math.Ldexp(1+(r+float64(float64(r*r)*sum)), int(n))
}
