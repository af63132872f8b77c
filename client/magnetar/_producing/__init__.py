"""The way of messages from `send` to a broker, and of results back."""
