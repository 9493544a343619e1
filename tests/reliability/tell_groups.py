"""Runs fairseq-train, and tells after every update how this process has grouped the heads.

python tell_groups.py [fairseq-train's arguments]
"""

import json
import os
import sys

sys.argv[0] = "fairseq-train"

# isort: off
from fairseq_cli.train import cli_main  # noqa: E402  first: it sets the log up
from fairseq.tasks.fairseq_task import FairseqTask  # noqa: E402  after it

step = FairseqTask.train_step


def train_step(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs):
    result = step(self, sample, model, criterion, optimizer, update_num, *rest, **kwargs)
    # Imported late: fairseq imports the package as its --user-dir.
    from fairseq_collab.attention.groups import head_group_attentions

    told = {
        "update": update_num,
        "process": int(os.environ.get("RANK", 0)),
        "groups": [a.membership.argmax(dim=1).tolist() for a in head_group_attentions(model)],
    }
    # In one write: the other process prints into the same pipe.
    os.write(1, f"\nGROUPS {json.dumps(told)}\n".encode())
    return result


FairseqTask.train_step = train_step
cli_main()
