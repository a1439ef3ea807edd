"""`hotbed twochoice bench`: a comparison of schedulers on agents, with files or OSDs."""
