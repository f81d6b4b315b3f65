"""From a suite file to complete cases: strict YAML, schemas, `extends`, sizes, defaults. Whoever imports this needs no NumPy."""
