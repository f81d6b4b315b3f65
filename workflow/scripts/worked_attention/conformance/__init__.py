"""Who does what: the matrix of implementations and cases, and the ONNX project's own tests."""
