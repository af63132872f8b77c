"""Tenants, namespaces, topics and subscriptions, as an operator works on them: `magnetar.admin` on the command line."""
