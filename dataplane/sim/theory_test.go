package sim

import (
	"math"
	"testing"
)

const replications = 10

// interval returns the mean and its standard error over replications.
func interval(values []float64) (mean, sem float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		sem += (v - mean) * (v - mean) / (n - 1)
	}
	return mean, math.Sqrt(sem / n)
}

// family compares quantities of one kind of model with theory. It checks each quantity per trial
// and over all trials, because a small common error may stay within every single interval.
type family struct {
	t      *testing.T
	errors map[string][]float64 // quantity: (mean - theory) / standard error, by trial
}

func newFamily(t *testing.T) *family { return &family{t, map[string][]float64{}} }

// hold checks the replications of one trial; bias is the model's allowed relative error.
func (f *family) hold(trial, quantity string, values []float64, want, bias float64) {
	f.t.Helper()
	mean, sem := interval(values)
	f.t.Logf("%s, %s: %.5g, theory %.5g (%+.2f %%, standard error %.2f %%)", trial, quantity, mean,
		want, 100*(mean/want-1), 100*sem/want)
	off := math.Max(math.Abs(mean-want)-bias*want, 0)
	if math.IsNaN(mean) || off > 5*sem {
		f.t.Errorf("%s, %s: %.5g +- %.2g, theory says %.5g (%+.2f %%)", trial, quantity, mean, sem,
			want, 100*(mean/want-1))
	}
	if sem > 0.1*math.Abs(want) {
		f.t.Errorf("%s, %s: the standard error %.2g is too large to tell anything about %.5g", trial,
			quantity, sem, want)
	}
	f.errors[quantity] = append(f.errors[quantity], math.Copysign(off, mean-want)/sem)
}

// over checks each quantity over all trials. The sum of n errors has a standard deviation of about
// sqrt(9/7 n), for Student's t from ten replications.
func (f *family) over() {
	f.t.Helper()
	for quantity, errors := range f.errors {
		sum := 0.0
		for _, e := range errors {
			sum += e
		}
		z := sum / math.Sqrt(float64(len(errors))*9/7)
		f.t.Logf("%s over %d trials: %+.1f standard deviations", quantity, len(errors), z)
		if math.Abs(z) > 3 {
			f.t.Errorf("%s is off by %+.1f standard deviations over %d trials", quantity, z, len(errors))
		}
	}
}

// erlangC returns the probability of waiting in an M/M/c queue with offered load a = lambda E[S].
func erlangC(c int, a float64) float64 {
	b := 1.0 // Erlang B by its recursion
	for i := 1; i <= c; i++ {
		b = a * b / (float64(i) + a*b)
	}
	rho := a / float64(c)
	return b / (1 - rho + rho*b)
}

// mva computes exact mean value analysis (Reiser and Lavenberg, 1980) of a closed network of one
// class: n customers, mean think time, and single servers with the given demands (visits times mean
// service) in seconds. It returns the throughput of cycles and each server's mean number.
func mva(n int, think float64, demands []float64) (throughput float64, numbers []float64) {
	numbers = make([]float64, len(demands))
	for i := 1; i <= n; i++ {
		cycle := think
		residences := make([]float64, len(demands))
		for s, d := range demands {
			residences[s] = d * (1 + numbers[s])
			cycle += residences[s]
		}
		throughput = float64(i) / cycle
		for s := range numbers {
			numbers[s] = throughput * residences[s]
		}
	}
	return throughput, numbers
}

func TestMVAOnKnownNetworks(t *testing.T) {
	// Two equal servers without think time: X = n / (d (n + 1)).
	if x, _ := mva(5, 0, []float64{2, 2}); math.Abs(x-5.0/12) > 1e-12 {
		t.Errorf("two equal servers: %g", x)
	}
	// One server with think time is the machine repairman: utilization by Erlang's formula.
	x, _ := mva(3, 1, []float64{1})
	if want := 1 - 1/(1+3+6+6.0); math.Abs(x-want) > 1e-12 {
		t.Errorf("machine repairman: %g, want %g", x, want)
	}
}
