"""The words of verdicts as pages say them: closed tables, so that a word that is new is an error, and is not left in English."""

from worked_attention.pages.language import N_, _

REFERENCES = {  # on a reference's arrays
    "pass": N_("pass"),
    "convention": N_("convention"),
    "undecided": N_("undecided"),
    "fail": N_("fail"),
    "unsupported": N_("unsupported"),
    "not installed": N_("not installed"),
}
SUBMISSIONS = {  # on a submission's cases, and on the stages of a case
    "right": N_("right"),
    "wrong": N_("wrong"),
    "failed": N_("failed"),
    "unreadable": N_("unreadable"),
    "undecided": N_("undecided"),
    "convention": N_("convention"),
    "unsupported": N_("unsupported"),
    "follows": N_("follows"),
    "not sent": N_("not sent"),
}
REPEATED = {  # on arrays that were computed twice
    "identical": N_("identical"),
    "within": N_("within its bound"),
    "undecided": N_("undecided"),
    "beyond": N_("beyond its bound"),
    "missing": N_("missing"),
    "unreadable": N_("unreadable"),
}
EVIDENCE = {"certified": N_("certified"), "typical": N_("typical")}  # what a gate or bound rests on


def verdict(word: str) -> str:
    """A word on a submission, in the language that is spoken."""
    return _(SUBMISSIONS[word])


def repeated(word: str) -> str:
    """A word on an array that was computed twice, in the language that is spoken."""
    return _(REPEATED[word])


def evidence(word: str) -> str:
    """What a verdict rests on, in the language that is spoken."""
    return _(EVIDENCE[word])
