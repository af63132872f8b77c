"""What a broker answers: its streams and calls over the transport, and HTTP."""
