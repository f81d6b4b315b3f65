"""Truth: every array of every stage in ball arithmetic, by formulas written a second time; of stages/ it knows the catalogue alone."""
