package twochoice

import "time"

// Clock turns the readings of a clock that may be set into times that never go back. A clock that is
// back by no more than Tolerance (as after a correction of it) stands still until it has caught up;
// one that is back by more is a *ClockError each time, and nothing has changed.
//
// No order depends on it: the redirect table orders by receipt numbers.
type Clock struct {
	Tolerance time.Duration
	last      time.Duration
	held      uint64
}

// Read is the time now.
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

// Start sets the time before which nothing may be, such as that of the last record of a log.
func (c *Clock) Start(last time.Duration) { c.last = max(c.last, last) }

// Held is how many readings were back by no more than the tolerance.
func (c *Clock) Held() uint64 { return c.held }
