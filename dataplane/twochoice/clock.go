package twochoice

import "time"

// Clock turns readings of an adjustable clock into times that never decrease. If the clock went
// back by at most Tolerance (for example after a correction), the time stands still until the clock
// catches up. If it went back further, each reading is a *ClockError and nothing changes.
//
// No order depends on the clock: the redirect table orders by receipt numbers.
type Clock struct {
	Tolerance time.Duration
	last      time.Duration
	held      uint64
}

// Read returns the current time.
func (c *Clock) Read(wall time.Duration) (time.Duration, error) {
	if wall < c.last {
		if c.last-wall > c.Tolerance {
			return c.last, &ClockError{Now: wall, Last: c.last}
		}
		c.held++
		return c.last, nil
	}
	c.last = wall
	return wall, nil
}

// Start sets the earliest allowed time, for example the time of the last record of a log.
func (c *Clock) Start(last time.Duration) { c.last = max(c.last, last) }

// Held returns the number of readings that were back by at most Tolerance.
func (c *Clock) Held() uint64 { return c.held }
