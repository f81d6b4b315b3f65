"""Pages for people: every multiply-add of a case in words, formulas and numbers. Arrays in, text out."""
