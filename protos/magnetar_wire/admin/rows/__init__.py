"""The rows of the table of admin calls, a file per subject; and Pulsar's paths that are not supported."""
