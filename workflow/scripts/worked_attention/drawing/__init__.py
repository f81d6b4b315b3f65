"""Pictures of arrays."""
