"""What is written and read: arrays, strict JSON, archives, golden vectors, the summary and the record of the machine."""
