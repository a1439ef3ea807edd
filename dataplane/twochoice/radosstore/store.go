// Package radosstore keeps an object server's data in a RADOS pool: fragments of the two-choice
// protocol, the base of the objects that are at home there, and the redirect log. The pool is on
// one OSD, which this agent serves: it replaces the disk of the paper's object server (section VI).
//
// RADOS operations on one object are atomic, and durable when they answer. So a fragment is one
// operation and nothing needs a sync. A crash can interrupt only changes of several objects: a log
// rewrite, or a base range across a piece border.
package radosstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// Pool is a pool with a single writer. Each call is one operation on one object.
type Pool interface {
	filestore.Objects
	// Truncate truncates an object.
	Truncate(name string, size uint64) error
	// Size returns an object's length.
	Size(name string) (uint64, error)
	// List returns the names of all objects, in any order.
	List() ([]string, error)
}

// missing reports whether an error means that an object does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// The log's objects are "l.<file>.<number>". The agent locks OwnerName; namesName lists the log's
// files.
const (
	// pieceSize is the number of bytes of a base in one object.
	pieceSize = 4 << 20
	// OwnerName is the object that an agent locks to own a pool.
	OwnerName = "owner"
	namesName = "log.names"
)

// OpenDisk opens an agent's data in its pool, or initializes an empty pool. It reads this many
// headers concurrently. A pool with foreign objects is refused and left unchanged.
func OpenDisk(pool Pool, node protocol.Node, atOnce int) (*filestore.Disk, filestore.Found, error) {
	objects, err := pool.List()
	if err != nil {
		return nil, filestore.Found{}, fmt.Errorf("the pool cannot be listed: %w", err)
	}
	for _, name := range objects {
		kind, _, dotted := strings.Cut(name, ".")
		known := name == OwnerName || name == namesName || dotted && len(kind) == 1 && strings.Contains("fbl", kind)
		if !known {
			return nil, filestore.Found{}, fmt.Errorf("%s is not an agent's; give each agent a pool of its own",
				pool.Path(name))
		}
	}
	store, fragments, err := filestore.NewStore(pool, objects, pieceSize, atOnce)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	log, err := openFiles(pool, objects)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	return filestore.OpenLog(log, node, store, fragments)
}
