package filestore_test

import (
	"errors"
	"testing"

	"hotbed/dataplane/tests/storetest"
	"hotbed/dataplane/twochoice/filestore"
)

// inFolder is a disk with its folder.
type inFolder struct {
	*filestore.Disk
	folder *filestore.Folder
}

func (d inFolder) Close() error   { return errors.Join(d.Disk.Close(), d.folder.Close()) }
func (d inFolder) Abandon() error { return d.folder.Close() }

func TestAFolderKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		path := t.TempDir()
		return func() (storetest.Disk, filestore.Found, error) {
			f, err := filestore.OpenFolder(path)
			if err != nil {
				return nil, filestore.Found{}, err
			}
			d, found, err := filestore.OpenDisk(f, storetest.Node)
			return inFolder{d, f}, found, err
		}
	})
}
