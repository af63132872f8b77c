"""The options of a query: everything that a user can set, parsed and checked once, when Spark calls the data source.

source_options.py     all options of a batch or of a stream as one value
option_names.py       the names of the options; hints for unknown names
option_values.py      numbers, sizes, booleans and durations
other_connectors.py   hints for the names of Kafka's and Pulsar's connectors
topic_selection.py    `topic`, `topics`, `topicsPattern`, `load(…)`
offset_option.py      `startingOffsets` and `endingOffsets`; positions as JSON and as text
offset_times.py       times in these two options
columns.py            the columns, and their types in Spark and Arrow
table_schema.py       the columns of SQL tables, and of queries with a schema of the user
decoding_options.py   what tasks need for decoding: `unreadable` and the limits of memory
"""
