"""What `--dry-run` prints."""

from __future__ import annotations

import shlex

from coordinator.cli.output import put
from coordinator.config import WEIGHTS, inputs_endpoint, work_endpoint
from coordinator.launch_plan import TUNNEL, LaunchPlan, ProcessPlan
from protocol.neighbours import bulk_endpoint
from protocol.wording import counted


def print_plan(plan: LaunchPlan) -> None:
    """The processes of a plan, with what each is given and the command that starts it."""
    put(f"model    {plan.model}\ncontrol  {plan.listen}\nwork     {work_endpoint(plan.listen)}\n")
    put(f"inputs   {inputs_endpoint(plan.listen)}\n")
    if any(process.name == WEIGHTS for process in plan.processes):
        put(f"bulk     {bulk_endpoint(plan.listen)}\n")
    put(f"{plan.lookahead}\n")
    for process in plan.processes:
        put(f"\n{process.name}: {_share(process)}\n  {shlex.join(process.command)}\n")


def _share(process: ProcessPlan) -> str:
    if process.name.startswith(TUNNEL):
        return f"leads from {process.host} to here"
    threads = counted(process.threads, "thread")
    if process.host is not None:
        return f"{threads} on {process.host}"
    if not process.cores:
        return f"{threads} on any core"
    return f"{threads} on core{'s' * (len(process.cores) > 1)} {', '.join(map(str, process.cores))}"
