"""Who someone is, and what they may do: what every node of a cluster agrees on."""
