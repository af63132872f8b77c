"""The commands for tenants, namespaces, topics and subscriptions: `magnetar.admin` on the command line."""
