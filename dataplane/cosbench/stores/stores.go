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
		"none":     {Keys: mock.NoneKeys, Check: mock.CheckNone, Open: mock.OpenNone},
		"mock":     {Keys: mock.Keys, Check: mock.Check, Open: mock.Open},
		"swift":    {Keys: swift.Keys, Check: swift.Check, Open: swift.Open},
		"s3":       {Keys: s3.Keys, Check: s3.Check, Open: s3.Open},
		"librados": {Keys: rados.Keys, Check: rados.Check, Open: rados.Open},
	}
}
