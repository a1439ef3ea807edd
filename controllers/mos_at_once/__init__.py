"""Basic MOS in the other reading of Algorithm 1: the first epoch already acts."""
