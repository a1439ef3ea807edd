// Command twochoiced is an object server with the two-choice scheduler's agent. It keeps data in a
// folder or in a Ceph pool on one OSD.
//
//	twochoiced --cluster FILE --node N --folder DIR                                  serve
//	twochoiced --cluster FILE --node N --pool NAME --ceph-user U --ceph-keyring FILE
//	twochoiced --cluster FILE --node N --check                 check the configuration
//
// The cluster file is the same on all nodes and names the key file; a key is never on a command
// line. See docs/twochoice.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/internal/librados"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/radosstore"
	"hotbed/dataplane/twochoice/server"
)

func main() { command.Main("twochoiced", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twochoiced", flag.ContinueOnError)
	path := flags.String("cluster", "", "cluster `FILE` (JSON), the same on all nodes")
	node := flags.Int("node", -1, "`N`, this agent's place in the cluster file, from 0")
	var where place
	flags.StringVar(&where.folder, "folder", "", "`DIR` for the agent's data, of its own")
	flags.StringVar(&where.ceph.Pool, "pool", "", "`NAME` of the agent's pool of Ceph, of its own")
	flags.StringVar(&where.ceph.Conf, "ceph-conf", "/etc/ceph/ceph.conf", "Ceph's configuration `FILE`")
	flags.StringVar(&where.ceph.User, "ceph-user", "", "`USER` of Ceph, without the \"client.\" before it")
	flags.StringVar(&where.ceph.Keyring, "ceph-keyring", "", "`FILE` with the user's key")
	flags.BoolVar(&where.takeOver, "take-over", false, "fence off an agent on another machine that has the pool")
	check := flags.Bool("check", false, "only say whether the configuration is good")
	usage := "--cluster FILE --node N (--folder DIR | --pool NAME --ceph-user USER) [--check]"
	if err := command.Parse(flags, args, usage); err != nil {
		return err
	}
	if *path == "" {
		return command.Usagef("--cluster is missing: name the cluster file")
	}
	if !*check {
		if err := where.check(); err != nil {
			return err
		}
	}
	cluster, err := server.LoadCluster(*path)
	if err != nil {
		return command.Usage(err)
	}
	if *node < 0 || *node >= len(cluster.Agents) {
		return command.Usagef("--node is %d; the cluster file names agents 0 to %d", *node, len(cluster.Agents)-1)
	}
	if _, err := server.LoadKey(cluster.KeyFile); err != nil {
		return command.Usage(err)
	}
	if where.ceph.Pool != "" && cluster.Memory == 0 && debug.SetMemoryLimit(-1) < math.MaxInt64 {
		cluster.Memory = debug.SetMemoryLimit(-1) / 4 // librados copies the data it writes
	}
	if _, err := cluster.RequestMemory(); err != nil {
		return command.Usage(err)
	}
	if *check {
		fmt.Println("the configuration is good")
		return nil
	}
	s, err := where.start(cluster, protocol.Node(*node))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "twochoiced %d: serving at %s\n", *node, s.Address())
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	if err := notifyReady(); err != nil {
		fmt.Fprintf(os.Stderr, "twochoiced %d: %v\n", *node, err)
	}
	return s.Wait()
}

// place is where an agent stores its bytes: a folder or a Ceph pool.
type place struct {
	folder   string
	ceph     librados.Config
	takeOver bool
}

// check returns an error of one sentence if a setting is missing or superfluous.
func (p place) check() error {
	switch {
	case p.folder == "" && p.ceph.Pool == "":
		return command.Usagef("--folder is missing: name the folder for the agent's data, or with --pool the agent's pool of Ceph")
	case p.folder != "" && p.ceph.Pool != "":
		return command.Usagef("--folder and --pool are both given; the agent's data are in one of them")
	case p.ceph.Pool == "" && p.takeOver:
		return command.Usagef("--take-over is of a pool, and --pool is missing")
	case p.ceph.Pool != "" && p.ceph.User == "":
		return command.Usagef("--ceph-user is missing: name the cephx user, without the \"client.\" before it")
	}
	return nil
}

// start opens the place and serves.
func (p place) start(c server.Cluster, node protocol.Node) (*server.Server, error) {
	if p.folder != "" {
		return server.Start(c, node, p.folder, os.Stderr)
	}
	lock, err := lockMachine(p.ceph.Pool)
	if err != nil {
		return nil, err
	}
	store, found, err := p.open(node)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	store.lock = lock
	s, err := server.StartOn(c, node, store, found, os.Stderr)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// onPool is a disk together with its pool.
type onPool struct {
	*filestore.Disk
	pool *librados.Pool
	lock *os.File
}

// Close ends the log and releases the pool.
func (d *onPool) Close() error { return errors.Join(d.Disk.Close(), d.pool.Close(), d.lock.Close()) }

// connecting is how long monitors may take to answer when the agent starts.
const connecting = 20 * time.Second

func (p place) open(node protocol.Node) (*onPool, filestore.Found, error) {
	p.ceph.Patience = connecting
	machine, err := os.Hostname()
	if err != nil {
		return nil, filestore.Found{}, err
	}
	pool, err := librados.Open(p.ceph)
	if err != nil {
		return nil, filestore.Found{}, err
	}
	var disk *filestore.Disk
	var found filestore.Found
	if err = pool.Own(machine, p.takeOver); err == nil {
		disk, found, err = radosstore.OpenDisk(pool, node, 16)
	}
	if err != nil {
		return nil, found, errors.Join(err, pool.Close())
	}
	return &onPool{Disk: disk, pool: pool}, found, nil
}

// lockMachine ensures that no other process of this machine uses the pool. The owner of a lock left
// in Ceph is then dead.
func lockMachine(pool string) (*os.File, error) { return lockIn("/run/hotbed", pool) }

// lockIn locks the pool in a folder closed to other users. In an open folder, another user could
// take the lock first or replace it by a link.
func lockIn(folder, pool string) (*os.File, error) {
	if err := ownFolder(folder); err != nil {
		return nil, fmt.Errorf("the pool %s cannot be locked on this machine: %w", pool, err)
	}
	path := filepath.Join(folder, "hotbed-"+filepath.Base(pool)+".lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the pool %s cannot be locked on this machine: %w", pool, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the pool %s is in use by another agent on this machine; stop that one first", pool)
		}
		return nil, fmt.Errorf("%s cannot be locked: %w", path, err)
	}
	return file, nil
}

// ownFolder creates the folder, closed to other users, or checks that this user owns it.
func ownFolder(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is another user's, or no folder: remove it", path)
	}
	return os.Chmod(path, 0o700)
}

// notifyReady notifies systemd that the agent serves, if systemd asked (Type=notify).
func notifyReady() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return fmt.Errorf("the agent cannot notify systemd: %w", err)
	}
	_, err = conn.Write([]byte("READY=1"))
	return errors.Join(err, conn.Close())
}
