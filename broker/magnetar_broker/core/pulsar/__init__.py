"""The rules of Pulsar's binary protocol: frames, what commands mean in the broker's own words, and back."""
