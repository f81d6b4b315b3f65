"""Python runs this at the start of every job, whose path has this folder: Ctrl-C ends a job at once and without a traceback, whatever it is
about to import, and the run says in a line that it was interrupted."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
