package queuedisk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/service"
)

// CheckBytes is the size of the check's random reads.
const CheckBytes = 4096

// Tolerance is the allowed relative error of the mean wait against Pollaczek-Khinchine.
const Tolerance = 0.10

// CheckConfig describes a check of a disk against M/G/1.
type CheckConfig struct {
	Binary   string        // the queuedisk program, run in its own process as in real use
	Model    service.Model // the disk
	Load     float64       // offered load, above 0 and below 1
	Requests int
	Seed     uint64
	Progress *command.Progress
}

// Check starts a disk on temporary files and offers it Poisson arrivals of random 4 KiB reads at
// the given load. It compares the mean wait in queue with Pollaczek-Khinchine. It removes
// everything it created, also if ctx ends it.
func Check(ctx context.Context, c CheckConfig) (report Report, err error) {
	dir, err := os.MkdirTemp("", "queuedisk-check-")
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	disk, err := startDisk(ctx, c, dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, disk.stop()) }()

	f, err := os.OpenFile(filepath.Join(disk.mount, FileName), os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return report, err
	}
	defer func() { _ = f.Close() }()

	rng := rand.New(rand.NewPCG(c.Seed, 0x9e3779b97f4a7c15))
	idle, err := idleOverhead(f, c.Model, rng, 200)
	if err != nil {
		return report, err
	}
	// The head starts at a random place, as the model's moments assume.
	requests := service.Poisson(c.Model, c.Load, c.Requests, CheckBytes, rng)
	var before, after Stats
	if err := Ask(disk.control, `{"op":"stats"}`, &before); err != nil {
		return report, err
	}
	responses, late, err := openLoop(ctx, f, requests, c.Progress)
	if err != nil {
		return report, err
	}
	if err := Ask(disk.control, `{"op":"stats"}`, &after); err != nil {
		return report, err
	}
	report = estimate(c, requests, responses)
	report.IdleOverheadS, report.LateMeanS = idle, late
	report.DiskWaitS = (after.WaitS - before.WaitS) / float64(after.Requests-before.Requests)
	report.DiskUtilization = (after.BusyS - before.BusyS) / (after.UptimeS - before.UptimeS)
	report.OvershootMeanS, report.OvershootMaxS = after.OvershootMeanS, after.OvershootMaxS
	return report, nil
}

// diskProcess is a queue disk that the check runs.
type diskProcess struct {
	cmd            *exec.Cmd
	mount, control string
}

func startDisk(ctx context.Context, c CheckConfig, dir string) (*diskProcess, error) {
	d := &diskProcess{mount: filepath.Join(dir, "mount"), control: filepath.Join(dir, "control")}
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		return nil, err
	}
	d.cmd = exec.Command(c.Binary,
		"--layer", filepath.Join(dir, "layer"), "--size", fmt.Sprint(c.Model.Size),
		"--positioning", c.Model.PositioningMean.String(),
		"--bandwidth", fmt.Sprint(c.Model.Bandwidth),
		"--mount", d.mount, "--control", d.control)
	d.cmd.Stderr = os.Stderr
	// Ctrl-C reaches only us, and we end the disk. If we are killed, the disk ends too.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := Ask(d.control, `{"op":"ping"}`, nil)
		if err == nil {
			return d, nil
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(10 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		return nil, errors.Join(fmt.Errorf("the disk did not start: %w", err), d.stop())
	}
}

// stop ends the disk and waits for it.
func (d *diskProcess) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("the disk: %w", err)
	}
	return nil
}

// Report is the result of a check. Times are in seconds, shares are fractions.
type Report struct {
	PositioningUs float64 `json:"positioning_us"`
	BandwidthBps  float64 `json:"bandwidth_bytes"`
	SizeBytes     int64   `json:"size_bytes"`
	RequestBytes  int64   `json:"request_bytes"`
	Load          float64 `json:"load"`
	Requests      int     `json:"requests"`
	Seed          uint64  `json:"seed"`

	ArrivalsPerS   float64 `json:"arrivals_per_s"`
	ServiceMeanS   float64 `json:"service_mean_s"`
	ServiceSecond  float64 `json:"service_second_moment_s2"`
	PredictedWaitS float64 `json:"predicted_wait_s"` // Pollaczek-Khinchine

	// MeasuredWaitS is the mean over all requests of response (from the intended arrival) minus
	// service. Its interval shows the sampling error of a run this long at this load.
	MeasuredWaitS  float64    `json:"measured_wait_s"`
	MeasuredCI95   [2]float64 `json:"measured_ci95_s"`
	MeasuredError  float64    `json:"measured_relative_error"`
	ModelledWaitS  float64    `json:"modelled_wait_s"` // the model's waits on the same arrivals
	ControlledS    float64    `json:"controlled_wait_s"`
	ControlledCI95 [2]float64 `json:"controlled_ci95_s"`
	// RelativeError is the error of ControlledS against PredictedWaitS; the verdict uses it.
	RelativeError float64 `json:"relative_error"`
	Within        bool    `json:"within_tolerance"`

	DiskWaitS       float64 `json:"disk_wait_s"`      // counted by the disk, arrival to start
	DiskUtilization float64 `json:"disk_utilization"` // busy share over the load, its edges included
	IdleOverheadS   float64 `json:"idle_overhead_s"`  // response - service with no queue
	LateMeanS       float64 `json:"generator_late_mean_s"`
	OvershootMeanS  float64 `json:"overshoot_mean_s"`
	OvershootMaxS   float64 `json:"overshoot_max_s"`
}

const (
	batches = 20
	t95     = 2.093 // Student's t, 19 degrees of freedom, two-sided 95 %
)

// batchMeans returns the mean of x and its 95 % interval. The interval uses means of consecutive
// batches, which are nearly independent, unlike neighbouring waits.
func batchMeans(x []float64) (mean float64, ci [2]float64) {
	means := make([]float64, batches)
	for b := range means {
		part := x[b*len(x)/batches : (b+1)*len(x)/batches]
		for _, v := range part {
			means[b] += v / float64(len(part))
		}
	}
	for _, v := range x {
		mean += v / float64(len(x))
	}
	var squares float64
	for _, m := range means {
		squares += (m - mean) * (m - mean)
	}
	half := t95 * math.Sqrt(squares/(batches-1)/batches)
	return mean, [2]float64{mean - half, mean + half}
}

// estimate compares the waits with Pollaczek-Khinchine. At 80 % load, few long busy periods
// dominate the mean of ten thousand waits, so it is several percent from its expectation on any
// disk. The model's waits on the same arrivals share this error and have a known expectation. So
// they are a control variate: controlled = measured - (modelled - predicted). The report also gives
// the plain mean.
func estimate(c CheckConfig, requests []service.Request, responses []time.Duration) Report {
	mean, second := c.Model.RandomMoments(CheckBytes)
	r := Report{
		PositioningUs: float64(c.Model.PositioningMean) / 1e3, BandwidthBps: c.Model.Bandwidth,
		SizeBytes: c.Model.Size, RequestBytes: CheckBytes, Load: c.Load, Requests: len(requests),
		Seed: c.Seed, ArrivalsPerS: c.Load / mean, ServiceMeanS: mean, ServiceSecond: second,
		PredictedWaitS: service.PollaczekKhinchine(c.Load/mean, mean, second),
	}
	waits := make([]float64, len(requests))
	excess := make([]float64, len(requests))
	modelled := service.Waits(c.Model, requests)
	var head int64
	for i, q := range requests {
		waits[i] = (responses[i] - c.Model.Service(head, q.Offset, q.Bytes)).Seconds()
		excess[i] = waits[i] - modelled[i].Seconds()
		r.ModelledWaitS += modelled[i].Seconds() / float64(len(requests))
		head = q.Offset + q.Bytes
	}
	r.MeasuredWaitS, r.MeasuredCI95 = batchMeans(waits)
	r.MeasuredError = r.MeasuredWaitS/r.PredictedWaitS - 1
	more, ci := batchMeans(excess)
	r.ControlledS = r.PredictedWaitS + more
	r.ControlledCI95 = [2]float64{r.PredictedWaitS + ci[0], r.PredictedWaitS + ci[1]}
	r.RelativeError = more / r.PredictedWaitS
	r.Within = math.Abs(r.RelativeError) <= Tolerance
	return r
}

// String returns the report as text for people.
func (r Report) String() string {
	var b strings.Builder
	ms := func(s float64) string { return fmt.Sprintf("%.3f ms", s*1e3) }
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("load", "%.0f %% by %d random reads of %d bytes, %.0f/s",
		100*r.Load, r.Requests, r.RequestBytes, r.ArrivalsPerS)
	line("mean service", "%s", ms(r.ServiceMeanS))
	line("mean wait, predicted", "%s (Pollaczek-Khinchine)", ms(r.PredictedWaitS))
	line("mean wait, measured", "%s (95 %% interval %s to %s), %+.1f %%", ms(r.MeasuredWaitS),
		ms(r.MeasuredCI95[0]), ms(r.MeasuredCI95[1]), 100*r.MeasuredError)
	line("  model, same arrivals", "%s", ms(r.ModelledWaitS))
	line("mean wait, controlled", "%s (95 %% interval %s to %s), %+.1f %%", ms(r.ControlledS),
		ms(r.ControlledCI95[0]), ms(r.ControlledCI95[1]), 100*r.RelativeError)
	line("wait counted by the disk", "%s", ms(r.DiskWaitS))
	line("disk busy", "%.1f %%", 100*r.DiskUtilization)
	line("added to an idle request", "%s", ms(r.IdleOverheadS))
	line("alarm late", "%s mean, %s at most", ms(r.OvershootMeanS), ms(r.OvershootMaxS))
	line("load generator late", "%s mean", ms(r.LateMeanS))
	verdict := "within"
	if !r.Within {
		verdict = "NOT within"
	}
	line("verdict", "%s %.0f %% of M/G/1", verdict, 100*Tolerance)
	return b.String()
}

// checkWorkers bounds the reads in flight. The loads of a check do not reach such a queue. If they
// did, the wait for a worker would count: responses are timed from the intended start.
const checkWorkers = 192

// aligned returns n bytes at an address that direct I/O accepts.
func aligned(n int) []byte {
	const unit = 4096
	b := make([]byte, n+unit)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (unit - 1)
	return b[skip : skip+n]
}

func readOnce(f *os.File, buffer []byte, r service.Request) error {
	n, err := syscall.Pread(int(f.Fd()), buffer[:r.Bytes], r.Offset)
	if err != nil {
		return fmt.Errorf("read of %d bytes at %d: %w", r.Bytes, r.Offset, err)
	}
	if int64(n) != r.Bytes {
		return fmt.Errorf("read of %d bytes at %d: got %d", r.Bytes, r.Offset, n)
	}
	return nil
}

// idleOverhead reads one request after another and returns the mean of response - service (s). The
// mean is the delay that FUSE, timer and scheduler add to a request without a queue.
func idleOverhead(f *os.File, m service.Model, rng *rand.Rand, n int) (float64, error) {
	buffer := aligned(CheckBytes)
	var head int64
	var sum time.Duration
	for range n {
		r := service.Request{Offset: rng.Int64N(m.Size/CheckBytes) * CheckBytes, Bytes: CheckBytes}
		start := time.Now()
		if err := readOnce(f, buffer, r); err != nil {
			return 0, err
		}
		sum += time.Since(start) - m.Service(head, r.Offset, r.Bytes)
		head = r.Offset + r.Bytes
	}
	return sum.Seconds() / float64(n), nil
}

// openLoop issues the requests at their times, independent of the disk. It returns each response
// time, counted from the intended arrival, and the mean lateness of issuing (s).
func openLoop(ctx context.Context, f *os.File, requests []service.Request, progress *command.Progress) (
	responses []time.Duration, late float64, err error) {
	c, err := newClock()
	if err != nil {
		return nil, 0, err
	}
	defer c.close()
	responses = make([]time.Duration, len(requests))
	todo := make(chan int, len(requests))
	failed := make(chan error, checkWorkers)
	origin := c.now() + 10*time.Millisecond
	var workers sync.WaitGroup
	for range checkWorkers {
		workers.Go(func() {
			buffer := aligned(CheckBytes)
			for i := range todo {
				if err := readOnce(f, buffer, requests[i]); err != nil {
					failed <- err
					return
				}
				responses[i] = c.now() - origin - requests[i].At
			}
		})
	}
	var lateness time.Duration
	last := requests[len(requests)-1].At
	for i, r := range requests {
		if err = c.sleepUntil(origin + r.At); err != nil {
			break
		}
		lateness += c.now() - origin - r.At
		todo <- i
		progress.Show(r.At.Seconds()/last.Seconds(), "check: %.0f s of %.0f s", r.At.Seconds(), last.Seconds())
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("interrupted: %w", err)
			break
		}
		if len(failed) > 0 {
			break
		}
	}
	close(todo)
	workers.Wait()
	progress.End()
	if len(failed) > 0 {
		err = <-failed
	}
	return responses, lateness.Seconds() / float64(len(requests)), err
}
