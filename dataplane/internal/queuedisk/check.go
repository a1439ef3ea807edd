package queuedisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"hotbed/dataplane/service"
)

// CheckBytes is the size of the check's random reads.
const CheckBytes = 4096

// Tolerance is the allowed relative error of the mean wait against Pollaczek-Khinchine.
const Tolerance = 0.10

// CheckConfig describes a check of a disk against M/G/1.
type CheckConfig struct {
	Binary   string        // the queuedisk program, run in its own process as in real use
	Model    service.Model // the disk
	Load     float64       // offered load, above 0 and below 1
	Requests int
	Seed     uint64
	Dir      string    // parent of the temporary folder, "" for the system's
	Progress io.Writer // one line that is overwritten; nil for none
}

// Check starts a disk on temporary files and offers it Poisson arrivals of random 4 KiB reads at
// the given load. It compares the mean wait in queue with Pollaczek-Khinchine. It removes
// everything it created, also if ctx ends it.
func Check(ctx context.Context, c CheckConfig) (report Report, err error) {
	dir, err := os.MkdirTemp(c.Dir, "queuedisk-check-")
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	disk, err := startDisk(ctx, c, dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, disk.stop()) }()

	f, err := os.OpenFile(filepath.Join(disk.mount, FileName), os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return report, err
	}
	defer func() { _ = f.Close() }()

	rng := rand.New(rand.NewPCG(c.Seed, 0x9e3779b97f4a7c15))
	idle, err := idleOverhead(f, c.Model, rng, 200)
	if err != nil {
		return report, err
	}
	// The head starts at a random place, as the model's moments assume.
	requests := Poisson(c.Model, c.Load, c.Requests, rng)
	var before, after Stats
	if err := Ask(disk.control, `{"op":"stats"}`, &before); err != nil {
		return report, err
	}
	responses, late, err := openLoop(ctx, f, requests, c.Progress)
	if err != nil {
		return report, err
	}
	if err := Ask(disk.control, `{"op":"stats"}`, &after); err != nil {
		return report, err
	}
	report = estimate(c, requests, responses)
	report.IdleOverheadS, report.LateMeanS = idle, late
	report.DiskWaitS = (after.WaitS - before.WaitS) / float64(after.Requests-before.Requests)
	report.DiskUtilization = (after.BusyS - before.BusyS) / (after.UptimeS - before.UptimeS)
	report.OvershootMeanS, report.OvershootMaxS = after.OvershootMeanS, after.OvershootMaxS
	return report, nil
}

// Poisson draws n random reads with arrivals that offer the model the given load.
func Poisson(m service.Model, load float64, n int, rng *rand.Rand) []service.Request {
	mean, _ := m.RandomMoments(CheckBytes)
	requests := make([]service.Request, n)
	at := 0.0
	for i := range requests {
		at += rng.ExpFloat64() * mean / load
		requests[i] = service.Request{
			At:     time.Duration(at * float64(time.Second)),
			Offset: rng.Int64N(m.Size/CheckBytes) * CheckBytes,
			Bytes:  CheckBytes,
		}
	}
	return requests
}

// diskProcess is a queue disk that the check runs.
type diskProcess struct {
	cmd            *exec.Cmd
	mount, control string
}

func startDisk(ctx context.Context, c CheckConfig, dir string) (*diskProcess, error) {
	d := &diskProcess{mount: filepath.Join(dir, "mount"), control: filepath.Join(dir, "control")}
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		return nil, err
	}
	d.cmd = exec.Command(c.Binary,
		"--layer", filepath.Join(dir, "layer"), "--size", fmt.Sprint(c.Model.Size),
		"--positioning", c.Model.PositioningMean.String(),
		"--bandwidth", fmt.Sprint(c.Model.Bandwidth),
		"--mount", d.mount, "--control", d.control)
	d.cmd.Stderr = os.Stderr
	// Ctrl-C reaches only us, and we end the disk. If we are killed, the disk ends too.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := Ask(d.control, `{"op":"ping"}`, nil)
		if err == nil {
			return d, nil
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(10 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		return nil, errors.Join(fmt.Errorf("the disk did not start: %w", err), d.stop())
	}
}

// stop ends the disk and waits for it.
func (d *diskProcess) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("the disk: %w", err)
	}
	return nil
}
