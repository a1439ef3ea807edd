"""The two-choice scheduler on real object servers with their own disks (section VI)."""
