package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

// These tests compare simulated queues with queueing theory, on random parameters. The interval of
// a simulated mean comes from independent replications. A test fails if the theory differs by more
// than five standard errors plus the model's known deviation.

// openQueue runs customers through one station. It returns their mean response and wait, the
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
	random, fam := NewStream(1, "mm1"), newFamily(t)
	defer fam.over()
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
		fam.hold(what, "response", responses, want, 1e-3) // time is in whole nanoseconds
		fam.hold(what, "utilization", utilizations, rho, 1e-3)
		fam.hold(what, "number", numbers, rho/(1-rho), 1e-3)
		fam.hold(what, "90th percentile", tails, want*math.Log(10), 1.0/128)
	}
}

func TestMMc(t *testing.T) {
	random, fam := NewStream(2, "mmc"), newFamily(t)
	defer fam.over()
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
		fam.hold(fmt.Sprintf("M/M/%d, rho %.2f", c, rho), "wait", waits, want, 1e-3)
	}
}

func TestMG1(t *testing.T) {
	random, fam := NewStream(3, "mg1"), newFamily(t)
	defer fam.over()
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
		fam.hold(fmt.Sprintf("M/G/1, %T, rho %.2f", law, rho), "wait", waits, want, 2e-3)
	}
}

// The disk is an M/G/1 queue too: Poisson arrivals of random reads, served by the model. Adjacent
// seeks share an offset and are slightly correlated, so 1 % is allowed (docs/queue-disk.md).
func TestTheDiskIsMG1(t *testing.T) {
	random, fam := NewStream(4, "disk"), newFamily(t)
	defer fam.over()
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
			// Tags never run out, so the queue is the device's own.
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
		fam.hold(what, "wait", waits, service.PollaczekKhinchine(lambda, first, second), 0.01)
		fam.hold(what, "utilization", utilizations, rho, 2e-3)
	}
}

// Each wait follows from the previous customer's (Lindley) or, with more servers, from the times
// when servers become free (Kiefer and Wolfowitz). Stations must agree to the nanosecond.
func TestStationsAgainstTheRecursion(t *testing.T) {
	random := NewStream(6, "recursion")
	for range 50 {
		servers := 1 + int(random.IntN(5))
		between, service := Exponential(ms), Exponential(Seconds(1e-3*float64(servers)*random.Uniform()))
		k, st, r := New(), NewStation(servers), &recorder{}
		free := make([]time.Duration, servers)
		var at, waits time.Duration
		left := map[uint64]time.Duration{}
		for i := range uint64(1000) {
			at += between.Draw(random)
			took := service.Draw(random)
			k.Post(at, Func(func(k *Kernel, arg uint64) { st.Submit(k, took, r, arg) }), i)
			first := 0
			for s := range free {
				if free[s] < free[first] {
					first = s
				}
			}
			start := max(at, free[first])
			free[first] = start + took
			waits += start - at
			left[i] = free[first]
		}
		k.Run()
		if got := st.Stats(k).Wait; got != waits {
			t.Fatalf("%d servers: waits of %v, the recursion says %v", servers, got, waits)
		}
		for i, customer := range r.args {
			if r.at[i] != left[customer] {
				t.Fatalf("customer %d left at %v, not %v", customer, r.at[i], left[customer])
			}
		}
	}
}

// network is a central-server network. Each request visits the first station, then with probability
// 1 - leave another station and the first again.
type network struct {
	stations []*Station
	service  []Distribution
	choice   []float64 // cumulative probabilities of the other stations
	leave    float64
	stream   *Stream
	done     []Handler // of the requests in progress, by client
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
	random, fam := NewStream(5, "mva"), newFamily(t)
	defer fam.over()
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
		first := 1 / leave // visits per cycle
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
		fam.hold(what, "throughput", throughputs, x, 1e-3)
		fam.hold(what, "response", responses, float64(clients)/x-think, 1e-3)
		for i := range want {
			fam.hold(what, fmt.Sprintf("number at %d", i), numbers[i], want[i], 1e-3)
		}
	}
}
