"""Archives: one state of the project as one zip, the check of such a zip, and what it says against another or against this machine."""
