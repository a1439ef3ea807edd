"""`hotbed twochoice bench`: schedulers side by side on agents, on files or before OSDs."""
