"""Tenants, namespaces and partitioned topics, and what an administrator asks of them and of topics."""
