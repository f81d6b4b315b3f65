"""What all figures share, those that matplotlib draws and those that are written as SVG: letters and the colours of words."""

FAMILIES = "DejaVu Sans, Verdana, Noto Sans, Noto Sans CJK TC, PingFang TC, Microsoft JhengHei, sans-serif"  # of words in SVG
INK, GREY, MASKED = "black", "#555555", "#eeeeee"
