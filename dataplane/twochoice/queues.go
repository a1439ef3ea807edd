package twochoice

import "math"

// Queues holds the true queue lengths of servers, for the oracle. The simulation adds other load
// and subtracts completed work; the oracle adds the writes it places. Finding the shortest queue
// takes O(1), a change O(log n).
type Queues struct {
	servers []Server
	place   []int32   // by server: its leaf, or unknown
	leaves  int       // a power of two
	least   []int32   // tournament tree: the winning leaf below each node; node 1 is the root
	length  []float64 // by leaf; infinite for no server
}

// NewQueues returns empty queues of servers.
func NewQueues(servers *Servers) *Queues {
	q := &Queues{servers: servers.All(), leaves: 1}
	for q.leaves < len(q.servers) {
		q.leaves *= 2
	}
	q.length = make([]float64, q.leaves)
	q.least = make([]int32, 2*q.leaves)
	for i := range q.leaves {
		q.least[q.leaves+i] = int32(i)
		if i >= len(q.servers) {
			q.length[i] = math.Inf(1)
			continue
		}
		for int(q.servers[i]) >= len(q.place) {
			q.place = append(q.place, unknown)
		}
		q.place[q.servers[i]] = int32(i)
	}
	for node := q.leaves - 1; node >= 1; node-- {
		q.play(node)
	}
	return q
}

func (q *Queues) play(node int) {
	left, right := q.least[2*node], q.least[2*node+1]
	if q.length[right] < q.length[left] {
		left = right
	}
	q.least[node] = left
}

// leaf returns the leaf of a server's queue, or -1 if there is none.
func (q *Queues) leaf(server Server) int {
	if server < 0 || int(server) >= len(q.place) {
		return -1
	}
	return int(max(q.place[server], -1))
}

// Set sets a queue's length; math.Inf(1) makes the oracle avoid the server (if it is down).
func (q *Queues) Set(server Server, length float64) {
	leaf := q.leaf(server)
	if leaf < 0 {
		return
	}
	q.length[leaf] = length
	for node := (q.leaves + leaf) / 2; node >= 1; node /= 2 {
		q.play(node)
	}
}

// Add lengthens a queue, or shortens it by a negative number.
func (q *Queues) Add(server Server, by float64) { q.Set(server, q.Length(server)+by) }

// Length returns a queue's length; infinite for an unknown server.
func (q *Queues) Length(server Server) float64 {
	leaf := q.leaf(server)
	if leaf < 0 {
		return math.Inf(1)
	}
	return q.length[leaf]
}

// Shortest returns the server with the shortest queue, the first of several, or NoServer if all
// lengths are infinite.
func (q *Queues) Shortest() Server {
	leaf := q.least[1]
	if math.IsInf(q.length[leaf], 1) {
		return NoServer
	}
	return q.servers[leaf]
}
