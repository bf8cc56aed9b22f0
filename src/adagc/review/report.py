"""The report on a review, in plain words."""

from __future__ import annotations

from adagc.review.measures import Measured

_SHOWN = 10  # conflicts that are listed


def report(found: Measured) -> str:
    """What a review tells, in lines of text."""
    return "\n".join([*sentences(found), *_table(found), *_conflicts(found)])


def sentences(found: Measured) -> list[str]:
    """What was found, in plain words."""
    shares = found.precision
    said = [f"{found.images:,} of {found.total:,} images are reviewed. {_first(shares.sentence)}."]
    if found.expected is not None and shares.suggested.count:
        inside = shares.suggested.low <= found.expected <= shares.suggested.high
        verdict = (
            "which these answers do not contradict"
            if inside
            else "which is more than people saw"
            if found.expected > shares.suggested.value
            else "which is less than people saw"
        )
        said.append(f"The model expected {found.expected:.0%} of them to be there, {verdict}.")
    notes = []
    if shares.skipped:
        notes.append(f"{shares.skipped:,} questions were skipped")
    if found.accepted:
        notes.append(f"{found.accepted:,} answers were given together, by a threshold")
    if found.undone:
        notes.append(f"{found.undone:,} times something was taken back")
    if notes:
        said.append(f"{_first('; '.join(notes))}.")
    for each in found.reviewers:
        pace = "" if each.per_hour is None else f", {each.per_hour:,.0f} per hour of work"
        noun = "answer" if each.answers == 1 else "answers"
        said.append(f"{each.name} gave {each.answers:,} {noun}{pace}.")
    return said


def _table(found: Measured) -> list[str]:
    if not found.classes:
        return []
    width = max(5, *(len(each.label) for each in found.classes))
    lines = [
        "",
        f"{'class':<{width}}  {'yes':>5} {'no':>5} {'skipped':>8} {'share of yes':>20}"
        f" {'expected':>9}",
    ]
    for each in found.classes:
        share = each.share
        told = f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})" if share.count else "-"
        expected = f"{each.expected / share.count:.0%}" if share.count else "-"
        lines.append(
            f"{each.label:<{width}}  {each.yes:>5,} {each.no:>5,} {each.skipped:>8,} {told:>20}"
            f" {expected:>9}"
        )
    return lines


def _conflicts(found: Measured) -> list[str]:
    if not found.conflicts:
        return ["", "No answer contradicts another, or a label."]
    words = {1: "yes", -1: "no"}
    count = len(found.conflicts)
    lines = ["", f"{count:,} {'entry has' if count == 1 else 'entries have'} answers that differ:"]
    for each in found.conflicts[:_SHOWN]:
        said = ", ".join(f"{who} {words[value]}" for who, value in each.said)
        lines.append(f"  {each.image}, {each.label}: {said}")
    if count > _SHOWN:
        lines.append(f"  and {count - _SHOWN:,} more (--json lists all)")
    return lines


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
