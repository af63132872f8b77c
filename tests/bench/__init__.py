"""The benchmarks: a module `bench_<group>` for each group, found by its name. See harness.py."""
