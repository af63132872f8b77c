"""The catalog: which tenants, namespaces and partitioned topics exist, and what may be created."""
