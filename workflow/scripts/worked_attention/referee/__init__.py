"""The referee: truth in ball arithmetic, certified bounds, verdicts on submissions, and the library of known mistakes."""
