"""Connections and streams to brokers, and what the client learns from brokers: owners of topics, schemas, growth."""
