"""MOS++ that corrects its model by measurements, and changes with care."""
