"""The state of a cluster as a whole, in a few sentences of the coordinator's report."""

from __future__ import annotations

from typing import Any

from protocol.wording import counted


def headline(report: dict[str, Any]) -> list[str]:
    """Each about another subject: what is under way, who computes; guesses, audits and a profile if there are any."""
    under_way = (
        f"{report['state']}, placement {report['placement']}, step {report['step']}, requests {report['requests']}"
        f"{_reading(report['reading'])}"
    )
    computing = (
        f"{report['isa']}{_device(report)}, local entries {report['local_entries']}, replans {report['replans']}, "
        f"hedges {report['hedges']}, late replies {report['late_replies']}"
    )
    also = _drafts(report["drafts"]), _audits(report["audits"]), _profile(report["profile"])
    return [one for one in (under_way, computing, *also) if one]


def _device(report: dict[str, Any]) -> str:
    """The coordinator's device, if that is more than its processor, and what it holds."""
    return "" if report["device"] == "cpu" else f", {report['device']} holds {report['device_experts']} experts"


def _drafts(drafts: dict[str, int]) -> str:
    """How many guesses were right, if there were any."""
    return f"drafts {drafts['accepted']}/{drafts['drafted']}" if drafts["drafted"] else ""


def _audits(audits: int) -> str:
    """How many answers of workers were compared with ours, if any were."""
    return f"{counted(audits, 'answer')} audited" if audits else ""


def _profile(profile: dict[str, Any] | None) -> str:
    """What was counted, if anything is."""
    if profile is None:
        return ""
    return f"profile: {counted(profile['rows'], 'row')} seen, 90 % of uses in {profile['experts_90']} experts"


def _reading(prompts: list[list[int]]) -> str:
    """How far the prompts are that are being read: of several, all their tokens together."""
    if not prompts:
        return ""
    done, total = (sum(column) for column in zip(*prompts, strict=True))
    what = "prompt" if len(prompts) == 1 else counted(len(prompts), "prompt")
    return f", reading {what} {done}/{total}"
