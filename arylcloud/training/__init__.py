"""For training scripts: resume, save, report, stop in time. Standard library only; imports nothing of ours.

    from arylcloud import training as aryl

    aryl.install()                                # SIGTERM and SIGUSR1 now mean: stop soon
    step = load(aryl.latest()) if aryl.latest() else 0
    while step < total:
        step = train(step)
        aryl.progress(step, total)
        if aryl.should_checkpoint() or aryl.should_stop():
            with aryl.save(step) as folder:
                write_everything_into(folder)
        if aryl.should_stop():
            raise SystemExit(0)                   # handed over: goes on elsewhere from this checkpoint
    with aryl.save(step) as folder: ...
    aryl.finished()

Outside arylcloud (no ``ARYL_*`` variables) all of it works, too: checkpoints go to ``./checkpoints``,
progress is written nowhere, nobody asks to stop but a signal.

On several machines, which come and go: ``Order`` and ``Steps`` (samples, and who takes which),
``scaled_rate``, ``arylcloud.training.pytorch`` (imports torch), and ``python -m arylcloud.training.warm``
(starts at once).

**A complete checkpoint** is a folder ``$ARYL_CHECKPOINT_DIR/step-<N>`` that holds a file ``_COMPLETE``, or
that was renamed into place (its ctime is later than its mtime). Names that begin with a dot are
unfinished.

**The progress file**, ``$ARYL_PROGRESS_FILE``, is replaced atomically, at most every 0.2 s; one object::

    {"step": 120, "total_steps": 1000, "save_s": 0.8, "at_s": 1767225600.0, "finished": false}

``step``: optimiser steps done, counted over all attempts; ``total_steps``, ``save_s`` (seconds that the
last save held up the training): null where unknown; ``at_s``: Unix seconds; ``finished``: all work is
done, so that an exit 0 after a signal of ours is the end of the job, not a hand-over.

**The pipeline file**, ``$ARYL_PIPELINE_FILE``, is there where the job has ``aryl: pipeline``: which layers
this node holds in this epoch, and who holds the others; ``info().pipeline`` reads it.

**The notice file**, ``$ARYL_NOTICE_FILE``, appears when the cloud takes the machine back:
``{"action": "terminate", "at_s": <Unix seconds at which it acts>, "seen_s": …}``. **The warning file**,
``$ARYL_WARNING_FILE``, appears when the cloud only thinks that it may: ``{"seen_s": …}``.
"""

from arylcloud.training.batches import Micro, Step, Steps, scaled_rate
from arylcloud.training.checkpoints import COMPLETE, completed, latest, save, should_checkpoint
from arylcloud.training.environment import Info, info
from arylcloud.training.pipeline import Pipeline, Replica
from arylcloud.training.progress import finished, progress
from arylcloud.training.sampling import Order
from arylcloud.training.stopping import install, notice_seconds_left, should_stop

__all__ = [
    "COMPLETE",
    "Info",
    "Micro",
    "Order",
    "Pipeline",
    "Replica",
    "Step",
    "Steps",
    "completed",
    "finished",
    "info",
    "install",
    "latest",
    "notice_seconds_left",
    "progress",
    "save",
    "scaled_rate",
    "should_checkpoint",
    "should_stop",
]
