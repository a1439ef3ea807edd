package simbridge

import "errors"

// activity reports the operations that PGs and OSDs have served since the start, and which PGs are
// not clean.
func (s *cephServer) activity(r *reply) {
	c := s.cluster
	groups, _ := c.PGs()
	pgs := make([]int64, 0, 2*groups)
	var unclean []int32
	for i := range groups {
		reads, writes := c.PGWork(i)
		pgs = append(pgs, reads, writes)
		if !c.Clean(i) {
			unclean = append(unclean, int32(i))
		}
	}
	osds := make([]int64, 0, 2*c.OSDs())
	for i := range c.OSDs() {
		reads, writes := c.OSDWork(i)
		osds = append(osds, reads, writes)
	}
	r.Result = map[string]any{"now_s": s.now()}
	r.longs("pgs", pgs)
	r.longs("osds", osds)
	r.ints("unclean", unclean)
}

// openLoop reports the results of open-loop writes: six numbers per second, three per request.
func (s *cephServer) openLoop(r *reply) error {
	seconds, requests, there := s.cluster.Open()
	if !there {
		return errors.New("no open-loop writes were started")
	}
	series := make([]float64, 0, 6*len(seconds))
	for _, v := range seconds {
		series = append(series, float64(v.Intended), float64(v.Finished), v.Latency.Seconds(),
			v.Longest.Seconds(), float64(v.Outstanding), v.Oldest.Seconds())
	}
	rows := make([]float64, 0, 3*len(requests))
	for _, v := range requests {
		rows = append(rows, v.At.Seconds(), v.Latency.Seconds(), float64(v.PG))
	}
	b, _ := s.cluster.Result()
	r.Result = map[string]any{"begun": b.Begun, "done": b.Done, "start_s": b.Start.Seconds()}
	r.floats("series", series)
	r.floats("requests", rows)
	return nil
}
