package librados

import "time"

// Config says which cluster, as whom, and for Open which pool.
type Config struct {
	// Conf is Ceph's configuration, such as /etc/ceph/ceph.conf, and Keyring the file with the user's key.
	// Empty: Monitors and Key say it.
	Conf, Keyring string
	// Monitors are the addresses of monitors, divided by commas, and Key is the user's.
	Monitors, Key string
	// User is the cephx user, without the "client." before it.
	User, Pool string
	// Patience is how long monitors may take to answer when connecting.
	Patience time.Duration
	// OSDPatience is how long an operation may take, of which it is then open whether it was done; 0: for ever.
	OSDPatience time.Duration
}

func (c Config) where() string {
	if c.Conf == "" {
		return c.Monitors
	}
	return c.Conf
}

// Cluster is a connection to a Ceph cluster. Its methods may be called from many goroutines.
type Cluster struct {
	library *library
	handle  uintptr
}

// Connect connects. Its error is one sentence, without the key.
func Connect(c Config) (*Cluster, error) {
	l, err := load()
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{library: l}
	if err := check(l.create(&cluster.handle, c.User), "a connection cannot be made for client.%s", c.User); err != nil {
		return nil, err
	}
	if err := cluster.connect(c); err != nil {
		l.shutdown(cluster.handle)
		return nil, err
	}
	return cluster, nil
}

func (c *Cluster) connect(config Config) error {
	l := c.library
	if config.Conf != "" {
		err := check(l.readConf(c.handle, config.Conf), "Ceph's configuration %s cannot be read", config.Conf)
		if err != nil {
			return err
		}
	}
	seconds := itoa(max(1, int(config.Patience.Seconds())))
	for _, option := range [][2]string{{"keyring", config.Keyring}, {"mon_host", config.Monitors}, {"key", config.Key},
		{"client_mount_timeout", seconds}, {"rados_mon_op_timeout", seconds},
		{"rados_osd_op_timeout", itoa(int(config.OSDPatience.Seconds()))}} {
		if option[1] == "" {
			continue
		}
		if err := check(l.setConf(c.handle, option[0], option[1]), "Ceph's option %s cannot be set", option[0]); err != nil {
			return err
		}
	}
	return check(l.connect(c.handle), "the Ceph cluster of %s does not let client.%s in", config.where(), config.User)
}

// Close disconnects. Its pools are closed before.
func (c *Cluster) Close() { c.library.shutdown(c.handle) }

// Pool opens a pool.
func (c *Cluster) Pool(name string) (*Pool, error) {
	p := &Pool{library: c.library, cluster: c.handle, name: name}
	err := check(c.library.createContext(c.handle, name, &p.context), "the pool %s cannot be opened", name)
	if err != nil {
		return nil, err
	}
	// A full pool is an answer, and not a wait without end.
	c.library.fullTry(p.context)
	return p, nil
}

// CreatePool makes a pool with the cluster's defaults; one that exists is syscall.EEXIST.
func (c *Cluster) CreatePool(name string) error {
	return check(c.library.createPool(c.handle, name), "the pool %s cannot be made", name)
}

// DeletePool removes a pool and all in it, where the cluster lets one (mon_allow_pool_delete).
func (c *Cluster) DeletePool(name string) error {
	return check(c.library.deletePool(c.handle, name), "the pool %s cannot be removed", name)
}
