"""Functions of the application that are called with messages, or when a consumer becomes active."""
