"""The transaction coordinator, and what leaders of partitions ask it before they write."""
