"""The two-choice scheduler's campaigns: simulated bursts of writes (section III; `kind`, `cell`),
experiments on object servers (section VI; `objects`), and `hotbed twochoice bench` (`bench`)."""
