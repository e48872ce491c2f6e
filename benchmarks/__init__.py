"""Lossless and its peers side by side: one run, alternating, medians. `make bench`."""
