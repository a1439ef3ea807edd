"""PriorityMeister's experiments on a deployed testbed: NFS servers, disks and links."""
