"""Worksheets: pages with results left blank, and the answers that come back, graded."""
