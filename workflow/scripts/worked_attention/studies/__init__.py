"""What several cases show together: tables and their figures."""
