package twochoice

import "math"

// Queues are the true queue lengths of servers, for the oracle. Whoever drives a simulation adds what
// comes to a server otherwise and takes off what it has done; what the oracle places it adds itself.
// The shortest is found in O(1), a change costs O(log n).
type Queues struct {
	servers []Server
	place   []int32   // by server: its leaf, or unknown
	leaves  int       // a power of two
	least   []int32   // a tournament: leaf that wins below each node; node 1 is the root
	length  []float64 // by leaf; infinite for none
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

// leaf is where a server's queue is, -1 when there is none.
func (q *Queues) leaf(server Server) int {
	if server < 0 || int(server) >= len(q.place) {
		return -1
	}
	return int(max(q.place[server], -1))
}

// Set makes a queue this long; math.Inf(1) keeps the oracle off it (a server that is down).
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

// Add makes a queue longer, or with a negative number shorter.
func (q *Queues) Add(server Server, by float64) { q.Set(server, q.Length(server)+by) }

// Length is how long a queue is; infinite for a server that there is not.
func (q *Queues) Length(server Server) float64 {
	leaf := q.leaf(server)
	if leaf < 0 {
		return math.Inf(1)
	}
	return q.length[leaf]
}

// Shortest is the server with the shortest queue, of several the first one; NoServer when all are
// infinite.
func (q *Queues) Shortest() Server {
	leaf := q.least[1]
	if math.IsInf(q.length[leaf], 1) {
		return NoServer
	}
	return q.servers[leaf]
}
