"""Swift microstores: what runs on their nodes, and the store that controllers steer."""
