package queuedisk

import (
	"fmt"
	"math"
	"strings"
	"time"

	"hotbed/dataplane/service"
)

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
