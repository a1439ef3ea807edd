// Package stores names the object stores that the driver knows.
package stores

import (
	"hotbed/dataplane/cosbench/storage"
	"hotbed/dataplane/cosbench/storage/mock"
	"hotbed/dataplane/cosbench/storage/rados"
	"hotbed/dataplane/cosbench/storage/s3"
	"hotbed/dataplane/cosbench/storage/swift"
)

// All are the storage types of a workload's XML. Any other is refused.
func All() storage.Registry {
	return storage.Registry{
		"none":     {Keys: mock.NoneKeys, Open: mock.OpenNone},
		"mock":     {Keys: mock.Keys, Open: mock.Open},
		"swift":    {Keys: swift.Keys, Open: swift.Open},
		"s3":       {Keys: s3.Keys, Open: s3.Open},
		"librados": {Keys: rados.Keys, Open: rados.Open},
	}
}
