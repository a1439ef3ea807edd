"""Swift microstores: the servers on their nodes, and the store that controllers change."""
