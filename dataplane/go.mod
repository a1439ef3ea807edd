module hotbed/dataplane

go 1.25.0

require (
	github.com/ebitengine/purego v0.10.2
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.28.0
)

require github.com/HdrHistogram/hdrhistogram-go v1.2.0
