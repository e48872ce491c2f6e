"""Client quotas: what is agreed on, whose limit counts for a request, how far it is used."""
