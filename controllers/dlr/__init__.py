"""DLR: primary affinity from the pressure on each OSD's node."""
