package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

// These tests hold simulated queues to what queueing theory says of them, on random parameters. The
// interval of a simulated mean comes from independent replications; a test fails where theory is
// outside of five standard errors plus what the model is known to differ by.

const replications = 10

// interval is the mean and its standard error over replications.
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

// hold compares replications with theory; bias is a relative error that the model may have beside.
func holdTo(t *testing.T, what string, values []float64, want, bias float64) {
	t.Helper()
	mean, sem := interval(values)
	if math.IsNaN(mean) || math.Abs(mean-want) > 5*sem+bias*want {
		t.Errorf("%s: %.5g +- %.2g, theory says %.5g (%+.2f %%)", what, mean, sem, want,
			100*(mean/want-1))
	}
	if sem > 0.1*math.Abs(want) {
		t.Errorf("%s: the standard error %.2g is too large to tell anything about %.5g", what, sem, want)
	}
}

// openQueue runs customers through one station and returns their mean response and wait, the
// station's utilization and mean number of jobs, and the response's 90th percentile, in seconds.
func openQueue(servers int, between, service Distribution, customers uint64, seed uint64) (
	response, wait, utilization, number, p90 float64,
) {
	k := New()
	st := NewStation(servers)
	draws := NewStream(seed, "service")
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		st.Submit(k, service.Draw(draws), done, id)
	})
	src := NewOpenLoop(between, NewStream(seed, "arrivals"), target)
	src.Start(k)
	warm := customers / 5
	for src.Offered() < warm {
		k.Step()
	}
	before, start := st.Stats(k), k.Now()
	src.Latency.Reset()
	for src.Latency.Count() < customers {
		k.Step()
	}
	after, span := st.Stats(k), (k.Now() - start).Seconds()
	return src.Latency.Mean(), (after.Wait - before.Wait).Seconds() / float64(after.Begun-before.Begun),
		(after.Busy - before.Busy) / span / float64(servers), (after.Area - before.Area) / span,
		src.Latency.Quantile(0.9).Seconds()
}

func TestMM1(t *testing.T) {
	random := NewStream(1, "mm1")
	for trial := range uint64(8) {
		rho := 0.1 + 0.75*random.Uniform()
		mean := exp(ln(1e-6) + random.Uniform()*ln(1e6)) // 1 us to 1 s
		var responses, utilizations, numbers, tails []float64
		for r := range uint64(replications) {
			response, _, utilization, number, p90 := openQueue(1, Exponential(Seconds(mean/rho)),
				Exponential(Seconds(mean)), 20000, trial*100+r)
			responses = append(responses, response)
			utilizations = append(utilizations, utilization)
			numbers = append(numbers, number)
			tails = append(tails, p90)
		}
		what := fmt.Sprintf("M/M/1, rho %.2f, mean service %.3g s", rho, mean)
		want := mean / (1 - rho)
		holdTo(t, what+", response", responses, want, 1e-3) // whole nanoseconds
		holdTo(t, what+", utilization", utilizations, rho, 1e-3)
		holdTo(t, what+", number", numbers, rho/(1-rho), 1e-3)
		holdTo(t, what+", 90th percentile", tails, want*math.Log(10), 1.0/128)
	}
}

// erlangC is the probability of waiting in an M/M/c queue with offered load a = lambda E[S].
func erlangC(c int, a float64) float64 {
	b := 1.0 // Erlang B by its recursion
	for i := 1; i <= c; i++ {
		b = a * b / (float64(i) + a*b)
	}
	rho := a / float64(c)
	return b / (1 - rho + rho*b)
}

func TestMMc(t *testing.T) {
	random := NewStream(2, "mmc")
	for trial := range uint64(5) {
		c := 2 + int(random.IntN(15))
		rho := 0.5 + 0.4*random.Uniform()
		const mean = 2e-3
		var waits []float64
		for r := range uint64(replications) {
			_, wait, _, _, _ := openQueue(c, Exponential(Seconds(mean/rho/float64(c))),
				Exponential(Seconds(mean)), 40000, trial*100+r)
			waits = append(waits, wait)
		}
		want := erlangC(c, rho*float64(c)) * mean / float64(c) / (1 - rho)
		holdTo(t, fmt.Sprintf("M/M/%d, rho %.2f, wait", c, rho), waits, want, 1e-3)
	}
}

func TestMG1(t *testing.T) {
	random := NewStream(3, "mg1")
	for trial := range uint64(9) {
		rho := 0.2 + 0.6*random.Uniform()
		mean := Seconds(exp(ln(1e-5) + random.Uniform()*ln(1e4)))
		var law Distribution
		switch trial % 3 {
		case 0:
			law = Constant(mean)
		case 1:
			law = Uniform{mean / 3, 5 * mean / 3}
		case 2:
			hyper, err := NewHyperExponential(mean, 1+4*random.Uniform())
			if err != nil {
				t.Fatal(err)
			}
			law = hyper
		}
		first, second := law.Moments()
		lambda := rho / first
		var waits []float64
		for r := range uint64(replications) {
			_, wait, _, _, _ := openQueue(1, Exponential(Seconds(1/lambda)), law, 30000,
				trial*100+r)
			waits = append(waits, wait)
		}
		want := service.PollaczekKhinchine(lambda, first, second)
		holdTo(t, fmt.Sprintf("M/G/1, %T, rho %.2f, wait", law, rho), waits, want, 2e-3)
	}
}

// The disk is an M/G/1 queue too: Poisson arrivals of random reads, served by the model. Neighbouring
// seeks share an offset and are slightly correlated, for which 1 % is allowed (docs/queue-disk.md).
func TestTheDiskIsMG1(t *testing.T) {
	random := NewStream(4, "disk")
	for trial := range uint64(6) {
		model := service.Model{
			PositioningMean: Seconds(exp(ln(1e-4) + random.Uniform()*ln(200))),
			Bandwidth:       exp(ln(1e7) + random.Uniform()*ln(100)),
			Size:            1 << (30 + random.IntN(12)),
		}
		block := int64(512) << random.IntN(10)
		rho := 0.2 + 0.6*random.Uniform()
		first, second := model.RandomMoments(block)
		lambda := rho / first
		var waits, utilizations []float64
		for r := range uint64(replications) {
			k := New()
			// As many tags as there are ever requests: the queue is the device's own.
			disk := NewDisk(k, DiskSpec{Model: model, Depth: 1 << 16})
			offsets := NewStream(trial*100+r, "offsets")
			target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
				op := IO{Offset: offsets.IntN(model.Size/block) * block, Bytes: block}
				if !disk.Submit(k, op, done, id) {
					t.Fatal("no tag")
				}
			})
			src := NewOpenLoop(Exponential(Seconds(1/lambda)), NewStream(trial*100+r, "arrivals"), target)
			src.Start(k)
			for src.Offered() < 5000 {
				k.Step()
			}
			before, start := disk.Stats(k), k.Now()
			for src.Offered() < 35000 {
				k.Step()
			}
			after := disk.Stats(k)
			waits = append(waits, (after.Wait-before.Wait).Seconds()/float64(after.Reads-before.Reads))
			utilizations = append(utilizations, (after.Busy-before.Busy).Seconds()/(k.Now()-start).Seconds())
		}
		what := fmt.Sprintf("disk %v, %.3g MB/s, %d B, rho %.2f", model.PositioningMean,
			model.Bandwidth/1e6, block, rho)
		holdTo(t, what+", wait", waits, service.PollaczekKhinchine(lambda, first, second), 0.01)
		holdTo(t, what+", utilization", utilizations, rho, 2e-3)
	}
}

// mva is exact mean value analysis (Reiser and Lavenberg, 1980) of a closed network of one class:
// n customers, mean think time, and single servers with the given demands (visits times mean
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

// network is a central-server network: each request visits the first station, then with probability
// 1 - leave one of the others and the first again.
type network struct {
	stations []*Station
	service  []Distribution
	choice   []float64 // cumulative probabilities of the others
	leave    float64
	stream   *Stream
	done     []Handler // of the requests under way, by client
	at       []int
}

func (n *network) Serve(k *Kernel, id uint64, done Handler) {
	n.done[id], n.at[id] = done, 0
	n.visit(k, id)
}

func (n *network) visit(k *Kernel, id uint64) {
	s := n.at[id]
	n.stations[s].Submit(k, n.service[s].Draw(n.stream), n, id)
}

func (n *network) Handle(k *Kernel, id uint64) {
	switch {
	case n.at[id] > 0:
		n.at[id] = 0
	case n.stream.Bernoulli(n.leave):
		n.done[id].Handle(k, id)
		return
	default:
		u := n.stream.Uniform()
		for n.at[id] = 1; u >= n.choice[n.at[id]-1]; n.at[id]++ {
		}
	}
	n.visit(k, id)
}

func TestClosedNetworksAgainstExactMVA(t *testing.T) {
	random := NewStream(5, "mva")
	for trial := range uint64(8) {
		others := 1 + int(random.IntN(4))
		clients := 1 + int(random.IntN(30))
		think := random.Uniform() * 0.1
		leave := 0.2 + 0.6*random.Uniform()
		means := make([]float64, others+1)
		weights := make([]float64, others)
		total := 0.0
		for i := range means {
			means[i] = 1e-3 + 9e-3*random.Uniform()
		}
		for i := range weights {
			weights[i] = 0.1 + random.Uniform()
			total += weights[i]
		}
		first := 1 / leave // visits a cycle
		demands := []float64{first * means[0]}
		choice, sum := make([]float64, others), 0.0
		for i, w := range weights {
			demands = append(demands, first*(1-leave)*w/total*means[i+1])
			sum += w / total
			choice[i] = sum
		}
		choice[others-1] = 1

		var throughputs, responses []float64
		numbers := make([][]float64, others+1)
		for r := range uint64(replications) {
			n := &network{choice: choice, leave: leave, stream: NewStream(trial*100+r, "network"),
				done: make([]Handler, clients), at: make([]int, clients)}
			for _, m := range means {
				n.stations = append(n.stations, NewStation(1))
				n.service = append(n.service, Exponential(Seconds(m)))
			}
			k := New()
			loop := NewClosedLoop(clients, Exponential(Seconds(think)), NewStream(trial*100+r, "think"), n)
			loop.Start(k)
			k.RunUntil(20 * time.Second)
			loop.Latency.Reset()
			before := make([]StationStats, len(n.stations))
			for i, s := range n.stations {
				before[i] = s.Stats(k)
			}
			const span = 100.0
			k.RunUntil(120 * time.Second)
			throughputs = append(throughputs, float64(loop.Latency.Count())/span)
			responses = append(responses, loop.Latency.Mean())
			for i, s := range n.stations {
				numbers[i] = append(numbers[i], (s.Stats(k).Area-before[i].Area)/span)
			}
		}
		x, want := mva(clients, think, demands)
		what := fmt.Sprintf("network %d: %d clients, think %.3f s, %d stations", trial, clients, think,
			len(means))
		holdTo(t, what+", throughput", throughputs, x, 1e-3)
		holdTo(t, what+", response", responses, float64(clients)/x-think, 1e-3)
		for i := range want {
			holdTo(t, fmt.Sprintf("%s, number at %d", what, i), numbers[i], want[i], 1e-3)
		}
	}
}

func TestMVAOnKnownNetworks(t *testing.T) {
	// Two equal servers without thinking: X = n / (d (n + 1)).
	if x, _ := mva(5, 0, []float64{2, 2}); math.Abs(x-5.0/12) > 1e-12 {
		t.Errorf("two equal servers: %g", x)
	}
	// One server and thinking is the machine repairman: utilization by Erlang's formula.
	x, _ := mva(3, 1, []float64{1})
	if want := 1 - 1/(1+3+6+6.0); math.Abs(x-want) > 1e-12 {
		t.Errorf("machine repairman: %g, want %g", x, want)
	}
}
