"""Planning on the driver: from the topics of a query to the slices that its tasks read.

topic_discovery.py     lists the partitions, and waits for topics that do not exist yet
offset_resolution.py   resolves `startingOffsets` and `endingOffsets` to positions
log_plan.py            asks a partition's broker which entries are between two positions, and where they are stored
filter_bounds.py       derives bounds from a batch's pushed filters
filter_pushdown.py     narrows a range to these bounds
plan_reuse_check.py    refuses a second query on one `load()` with pushed filters
data_loss.py           reports deleted messages: an error or a warning, by `failOnDataLoss`
slice_builder.py       splits plans into slices, one for each task
"""
