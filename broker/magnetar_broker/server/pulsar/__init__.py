"""The listener for Pulsar's binary protocol, for client libraries of Apache Pulsar. See README.md."""
