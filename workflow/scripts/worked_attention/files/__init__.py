"""What is written and read: arrays, strict JSON, golden vectors, the summary and the record of the machine."""
