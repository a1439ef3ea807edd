"""DLR for single placement groups, with the disks' measured service rates."""
