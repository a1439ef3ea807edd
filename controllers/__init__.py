"""Controllers: pure policies, and the loop that senses, decides, acts and journals."""
