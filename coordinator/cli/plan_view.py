"""What `--dry-run` prints."""

from __future__ import annotations

import shlex

import click

from coordinator.launch_plan import LaunchPlan, ProcessPlan


def print_plan(plan: LaunchPlan) -> None:
    """The processes of a plan, with what each is given and the command that starts it."""
    from coordinator.main import work_endpoint  # with all that the coordinator needs: not for those who only want help

    click.echo(f"model    {plan.model}")
    click.echo(f"control  {plan.listen}")
    click.echo(f"work     {work_endpoint(plan.listen)}")
    for process in plan.processes:
        click.echo(f"\n{process.name}: {_share(process)}")
        click.echo(f"  {shlex.join(process.command)}")


def _share(process: ProcessPlan) -> str:
    threads = f"{process.threads} thread{'s' * (process.threads > 1)}"
    if not process.cores:
        return f"{threads} on any core"
    return f"{threads} on core{'s' * (len(process.cores) > 1)} {', '.join(map(str, process.cores))}"
