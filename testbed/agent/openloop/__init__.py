"""An open-loop writer: writes at given rates to given placement groups, whatever the store does."""
