"""Random cases for somebody's kernel, and the smallest ones that it fails."""
