"""How the messages of admin calls are written as JSON, with the names of Pulsar's REST API."""
