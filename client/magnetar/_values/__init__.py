"""Values of messages: encoded before they are sent, and decoded when the application wants them."""
