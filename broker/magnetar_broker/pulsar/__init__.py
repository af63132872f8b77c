"""The broker's second door: Pulsar's public binary protocol, for clients of any language. See README.md beside this."""
