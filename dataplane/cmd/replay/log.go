package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/replay"
)

// openLog makes the replay write every request to the log, if a log was requested. It refuses to
// overwrite a log.
func (o *optionFlags) openLog(options *replay.Options) (finish func() error, err error) {
	if o.log == "" {
		return func() error { return nil }, nil
	}
	file, err := os.OpenFile(o.log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, command.Usagef("--log: %s is there already; name another file", o.log)
	}
	if err != nil {
		return nil, command.Usagef("--log: %w", err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	kinds := map[bool]string{true: "DiskRead", false: "DiskWrite"}
	options.Log = func(at, latency time.Duration, read bool, size int64) {
		_, _ = fmt.Fprintf(out, "%d,%d,%s,%d\n", at, latency, kinds[read], size)
	}
	return func() error { return errors.Join(out.Flush(), file.Close()) }, nil
}
