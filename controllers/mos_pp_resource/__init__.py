"""MOS++ with fine-tuning of every resource for itself."""
