"""What a stock Pulsar client really writes, and which schemas a real Pulsar accepts, recorded.

`pulsar_client.json` is the record: for each of `cases.CASES` what an application passed to the client, and the entries
that came out at the other end; and which partition the client chose for each of `cases.KEYS`. `capture.py` makes it, by
playing a broker (broker.py) to the installed client. It uses nothing of ours, so that ours can be held against it.

    python -m tests.vectors.capture        writes the record again

`java_batches.json` has what Pulsar's Java client sends with key-based batching; capture_java_batches.py makes it.

`schema_verdicts.json` has a Pulsar's verdicts on `schema_cases.py`; capture_schemas.py makes it.
tests/unit/broker/schemas/test_schema_verdicts.py compares ours with it, and
tests/integration/test_pulsar_schema_verdicts.py those of a Pulsar that runs then.

tests/unit/wire/test_stock_client.py runs the same capture in memory and holds it against the record, so a new version
of the client that writes anything else is noticed.
"""
