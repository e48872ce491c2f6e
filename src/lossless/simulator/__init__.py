"""The deterministic host: the core's machines, with a clock, a network and disks of its own."""
