"""Implementations that we did not write, run on the same parameters; one short module per reference.

A reference module has `supports(case)`, which returns None or says why it cannot run the case, and `run(case, arrays)`, which takes
the parameters of the case and returns every array that the implementation shows, named as in our catalogue. A name in
front of a dot, as in `sequence_first.output`, tells a second way of asking for the same array.
"""

LIBRARIES = {"torch": ("mha", "sdpa", "manual")}
