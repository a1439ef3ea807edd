// Package stores names the object stores that the driver knows.
package stores

import (
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/cosbench/storage/mock"
)

// All are the storage types of a workload's XML. Any other is refused.
func All() storage.Registry {
	return storage.Registry{
		"none": {Keys: mock.NoneKeys, Open: mock.OpenNone},
		"mock": {Keys: mock.Keys, Open: mock.Open},
	}
}
