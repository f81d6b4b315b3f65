"""Implementations that we did not write, run on the same parameters; one short module per reference.

A reference module has three functions. `supports(case)` returns None or says why it cannot run the case. `run(case, arrays)` takes
the parameters of the case and returns every array that the implementation shows, named as in our catalogue; a name in
front of a dot, as in `sequence_first.output`, tells a second way of asking for the same array. `convention(case)` returns None,
or names the convention that the implementation follows where the case names another one, so that a difference is no fault.
"""

LIBRARIES = {"torch": ("mha", "sdpa", "flash", "flex", "manual")}
