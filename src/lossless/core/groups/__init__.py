"""The group coordinator: who reads which partitions together, and how far they have come."""
