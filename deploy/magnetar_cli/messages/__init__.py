"""Messages on the command line: published from what is read, and shown as they are received."""
