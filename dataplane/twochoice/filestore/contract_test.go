package filestore_test

import (
	"errors"
	"os"
	"testing"

	"hotbed/dataplane/tests/storetest"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/redirectlog"
)

// inFolder is a disk with its folder.
type inFolder struct {
	*filestore.Disk
	folder *redirectlog.Folder
}

// listed is a folder that can be listed.
type listed struct {
	*redirectlog.Folder
	path string
}

func (f listed) List() ([]string, error) {
	entries, err := os.ReadDir(f.path)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

func (d inFolder) Close() error   { return errors.Join(d.Disk.Close(), d.folder.Close()) }
func (d inFolder) Abandon() error { return d.folder.Close() }

func TestAFolderKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		path := t.TempDir()
		return func() (storetest.Disk, filestore.Found, error) {
			f, err := redirectlog.OpenFolder(path)
			if err != nil {
				return nil, filestore.Found{}, err
			}
			d, found, err := filestore.OpenDisk(listed{f, path}, storetest.Node)
			return inFolder{d, f}, found, err
		}
	})
}
