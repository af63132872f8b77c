"""The gRPC listener: calls, `produce` streams and `consume` streams, as `broker.proto` defines them."""
