"""What a run says, and what it finds lost: a stage of which a file was deleted or emptied is made anew, and what follows with it.

Only the process that the user started does this, and no other; see worked_attention/terminal.py.
"""

import os

from snakemake.logging import logger
from worked_attention.slurm import configured, refusal
from worked_attention.terminal import attach, ending

TERMINAL, LOST = None, {}

if workflow.is_main_process and not (
    workflow.output_settings.dryrun or workflow.output_settings.verbose
):
    TERMINAL = attach(
        logger.handlers, lambda: ending(workflow.dag_settings.targets, plan.place)
    )


def begin(wildcards):
    """The array files of a suite. Every chain of jobs begins here, so this is where its stages are looked at: those that have lost a
    file are forced, as `--forcerun` would, which makes what follows run as well."""
    if workflow.is_main_process:
        lost = dict(plan.not_whole(wildcards.suite))
        LOST.update(lost)
        workflow.dag.forcefiles.update(lost)
    return ancient(plan.suites[wildcards.suite]["files"])


onstart:
    if os.path.exists("results") and not os.access("results", os.W_OK):
        sys.exit(
            "Error: results/ cannot be written; a run needs it, and the folder that it is in"
        )
    if workflow.executor_plugin.name == "slurm":
        if refused := refusal(configured()):
            sys.exit(refused)
    # Snakemake's limit of jobs per second (100) makes every run wait for a last second, and looks at all waiting jobs once a second for each
    # job that has ended. Jobs that run here need no such limit; those that are sent to a cluster do.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    for folder in filter(os.path.exists, LOST):
        logger.warning(f"{folder} has lost {LOST[folder]}, and is made anew")


onsuccess:
    if TERMINAL and TERMINAL.ending():
        print(TERMINAL.ending(), flush=True)


onerror:
    if TERMINAL:
        print(TERMINAL.failures(), file=sys.stderr, flush=True)
