"""The broker's two listeners: gRPC for Magnetar's own clients and for brokers, and Pulsar's binary protocol."""
