package radosstore

import (
	"fmt"
	"strings"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// LogName is the name of an agent's redirect log.
const LogName = filestore.LogName

// OpenDisk opens an agent's data in its pool, or initializes an empty pool. A pool with foreign
// objects is refused and left unchanged.
func OpenDisk(pool Pool, node protocol.Node) (*filestore.Disk, filestore.Found, error) {
	return openDisk(pool, node, openAtOnce)
}

// OpenDiskInOrder is OpenDisk with one operation at a time, for a simulated pool.
func OpenDiskInOrder(pool Pool, node protocol.Node) (*filestore.Disk, filestore.Found, error) {
	return openDisk(pool, node, 1)
}

func openDisk(pool Pool, node protocol.Node, atOnce int) (*filestore.Disk, filestore.Found, error) {
	objects, err := pool.List()
	if err != nil {
		return nil, filestore.Found{}, fmt.Errorf("the pool cannot be listed: %w", err)
	}
	begun := false
	for _, name := range objects {
		begun = begun || strings.HasPrefix(name, "f.") || strings.HasPrefix(name, "b.")
		kind, _, dotted := strings.Cut(name, ".")
		known := name == OwnerName || name == namesName || dotted && len(kind) == 1 && strings.Contains("fbl", kind)
		if !known {
			return nil, filestore.Found{}, fmt.Errorf("%s is not an agent's; give each agent a pool of its own",
				pool.Path(name))
		}
	}
	store, fragments, err := open(pool, objects, atOnce)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	log, err := openFiles(pool, objects)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	return filestore.OpenLog(log, node, store, fragments, begun)
}
