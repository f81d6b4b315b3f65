"""Wrong suites and configs: one line for each problem, all at once, and nothing is run or written.

The tables below are meant to be read: what is changed in a small valid suite or config, and where and what the complaint says.
"""

import copy
import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import ROOT, contents, run, with_suites
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from worked_attention.cases.options import schema
from worked_attention.cases.strict_yaml import Problem, Problems
from worked_attention.cases.suites import load_config, load_suites

SUITE = """\
description: Small.
cases:
  base:
    tokens: [a, b]
    heads: 2
    parameters:
      x: [[1, 2], [3, 4]]
      w_q: [[1, 0], [0, 1]]
      w_k: [[1, 0], [0, 1]]
      w_v: [[1, 0], [0, 1]]
      w_o: [[1, 0], [0, 1]]
      b_o: [0.5, 0.5]
    claims:
      output: {at: [0], values: ["1.9", "2.0"]}
  variant:
    extends: base
    heads: 1
"""
DRAWN = """\
cases:
  base:
    sizes: {Lq: 2, d_model: 4}
    torch_draws: {seed: 0, order: [x]}
"""
WIDE = """\
cases:
  base:
    parameters:
      x: [[1, 2], [3, 4]]
      w_q: [[1, 2, 3], [4, 5, 6]]
      w_k: [[1, 2], [3, 4]]
      w_v: [[1, 2], [3, 4]]
"""
MANY = WIDE.replace("    parameters:", "    heads: 3\n    sizes: {d_v: 1}\n    parameters:")
TWICE = """\
cases:
  base:
    sizes: {Lq: 2, d_kv: 2, d_vv: 3}
    parameters: {x: {grid: {}}}
"""
OWN = "mask: {causal: top_left, key_lengths: [2], diagonal: own}"
ZERO = "qk_norm: {kind: l2, zero_vector: nan}"
CONFIG = """\
suites: all
gates: {float64: 1e-12}
looks: {digits: 3}
limits: {max_array_mb: 1, max_truth_mb: 110, max_sweep_cases: 5}
"""


@dataclass
class Wrong:
    """One wrong suite or config, and one problem that it must give (of `count`)."""

    name: str
    change: tuple[str, str] | str | bytes | Callable[[Path], None]  # (old, new) in the valid text, the whole file, or on the folder
    line: int | None
    case: str | None
    field: str | None
    words: str
    count: int = 1


def text(*pairs: str) -> str:
    """SUITE with each old text replaced by the new one that follows it."""
    changed = SUITE
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in changed
        changed = changed.replace(old, new, 1)
    return changed


def x_is(value: str) -> tuple[str, str]:
    return ("[[1, 2], [3, 4]]", value)


def swept(sweep: str, more: str = "") -> tuple[str, str]:
    """The variant as a sweep, on line 17; `more` follows."""
    return ("    extends: base\n    heads: 1\n", f"    extends: base\n    sweep: {sweep}\n{more}")


def heads_is(value: str) -> tuple[str, str]:
    return ("heads: 2", f"heads: {value}")


def base_has(line: str) -> tuple[str, str]:
    return ("    heads: 2\n", f"    heads: 2\n    {line}\n")


def variant_is(value: str) -> tuple[str, str]:
    return ("variant:\n    extends: base\n    heads: 1\n", f"variant: {value}\n")


def scaling_is(options: str, base: float = 10000) -> tuple[str, str]:
    return base_has(f"rotary: {{pairing: half, base: {base}, scaling: {{{options}}}}}")


def claim_is(value: str) -> tuple[str, str]:
    return ('{at: [0], values: ["1.9", "2.0"]}', value)


def renamed(new: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "small.yaml").rename(folder / new)


BOMB = "".join(f"        - &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))

ODD = "cases:\n  base:\n    rotary: {pairing: half}\n    parameters: {q: [[1, 2, 3]], k: [[1, 2, 3]], v: [[1, 2, 3]]}\n"
YARN, LLAMA = "rule: yarn, factor: 4, original_length: 8", "rule: llama3, factor: 4, original_length: 8"
T5 = DRAWN.replace("[x]}", "[x]}\n    t5: {longest: 2, direction: left}\n    parameters: {t5_table: [[1], [2], [3], [4]]}")

SUITES = [
    # keys
    Wrong("unknown key", ("heads: 2", "head: 2"), 5, "base", "head", "did you mean heads?"),
    Wrong("unknown key of the suite", ("description", "descripton"), 1, None, "descripton", "did you mean description?"),
    Wrong("unknown parameter", ("w_q:", "wq:"), 8, "base", "parameters.wq", "did you mean w_q?"),
    Wrong("unknown size", base_has("sizes: {dk: 1}"), 6, "base", "sizes.dk", "did you mean d_k?"),
    Wrong("unknown kind of parameter", x_is("{fiel: x.npy}"), 7, "base", "parameters.x.fiel", "did you mean file?"),
    Wrong("duplicate key", base_has("heads: 4"), 6, "base", "heads", "duplicate key, first on line 5"),
    Wrong("duplicate key in quotes", base_has('"heads": 4'), 6, "base", "heads", "duplicate key, first on line 5"),
    Wrong("duplicate case", ("variant:", "base:"), 15, "base", None, "duplicate key, first on line 3"),
    Wrong("key that is a list", base_has("? [a]\n    : 1"), 6, "base", None, "keys are names"),
    Wrong("no value", heads_is(""), 5, "base", "heads", "has no value"),
    Wrong("null removes nothing", heads_is("null"), 5, "base", "heads", "nothing is inherited here"),
    Wrong("null removes nothing inherited", ("heads: 1", "parameters: {b_v: null}"), 17, "variant", "parameters.b_v", "nothing is"),
    # names
    Wrong("name no", ("variant:", "no:"), 15, "no", None, 'quote it: "no"'),
    Wrong("name 010", ("variant:", "010:"), 15, "010", None, 'quote it: "010"'),
    Wrong("name is a number", ("variant:", "42:"), 15, "42", None, 'quote it: "42"'),
    Wrong("name is a date", ("variant:", "2026-11-30:"), 15, "2026-11-30", None, "is not text"),
    Wrong("name with a space", ("variant:", "my variant:"), 15, "my variant", None, "small letters, digits and _"),
    Wrong("name with a capital", ("variant:", "Variant:"), 15, "Variant", None, "small letters, digits and _"),
    Wrong("name that climbs", ("variant:", "../variant:"), 15, "../variant", None, "small letters, digits and _"),
    Wrong("name with an accent", ("variant:", "naïve:"), 15, "naïve", None, "small letters, digits and _"),
    Wrong("name of 300 letters", ("variant:", "v" * 300 + ":"), 15, "v" * 300, None, "at most 100"),
    # values that YAML versions read differently, and other types
    Wrong("text for a number", x_is("[[1, 2], [3, four]]"), 7, "base", "parameters.x.1.1", "is text (four), should be a number"),
    Wrong("number in quotes", x_is('[[1, 2], [3, "4"]]'), 7, "base", "parameters.x.1.1", "without quotes"),
    Wrong("true for a number", x_is("[[1, 2], [3, true]]"), 7, "base", "parameters.x.1.1", "a boolean (true), should be a number"),
    Wrong("number 010", x_is("[[1, 2], [3, 010]]"), 7, "base", "parameters.x.1.1", "010 changes its meaning"),
    Wrong("number 1_000", x_is("[[1, 2], [3, 1_000]]"), 7, "base", "parameters.x.1.1", "1_000 changes its meaning"),
    Wrong("number 0x1F", x_is("[[1, 2], [3, 0x1F]]"), 7, "base", "parameters.x.1.1", "0x1F changes its meaning"),
    Wrong("number 1:30", x_is("[[1, 2], [3, 1:30]]"), 7, "base", "parameters.x.1.1", "1:30 changes its meaning"),
    Wrong("tokens yes and no", ("[a, b]", "[yes, no]"), 4, "base", "tokens.1", 'quote it if it is text ("no")', 2),
    Wrong("tokens are numbers", ("[a, b]", "[a, 2]"), 4, "base", "tokens.1", "a number (2), should be text"),
    Wrong("title is a date", base_has("title: 2026-11-30"), 6, "base", "title", "2026-11-30 changes its meaning"),
    Wrong("NaN", x_is("[[1, 2], [3, .nan]]"), 7, "base", "parameters.x.1.1", "is nan, should be a finite number"),
    Wrong("infinity", x_is("[[1, 2], [3, -.inf]]"), 7, "base", "parameters.x.1.1", "is -inf, should be a finite number"),
    Wrong("1e999", x_is("[[1, 2], [3, 1e999]]"), 7, "base", "parameters.x.1.1", "should be a finite number"),
    Wrong("too large for float32", text(*base_has("dtype: float32"), *x_is("[[1e39, 1]]")), 8, "base", "parameters.x.0.0", "in float32"),
    Wrong("whole number of 5,000 digits", x_is(f"[[1, 2], [3, {'9' * 5000}]]"), 7, "base", "parameters.x.1.1", "is too large"),
    Wrong("heads of 400 digits", heads_is("9" * 400), 5, "base", "heads", "is too large"),
    Wrong("heads in quotes", heads_is('"2"'), 5, "base", "heads", "should be a whole number; write the number without quotes"),
    Wrong("heads after a tag that YAML ignores", heads_is('! "2"'), 5, "base", "heads", "should be a whole number"),
    Wrong("heads zero", heads_is("0"), 5, "base", "heads", "is 0, should be at least 1"),
    Wrong("heads negative", heads_is("-1"), 5, "base", "heads", "is -1, should be at least 1"),
    Wrong("heads 2.0", heads_is("2.0"), 5, "base", "heads", "should be a whole number"),
    Wrong("heads a list", heads_is("[2]"), 5, "base", "heads", "is a list, should be a whole number"),
    Wrong("escape codes", heads_is('"\\e[31mred"'), 5, "base", "heads", "(\\x1b[31mred)"),
    Wrong("tokens text", ("[a, b]", "ab"), 4, "base", "tokens", "should be a list; write [ab]"),
    Wrong("dtype unknown", base_has("dtype: float12"), 6, "base", "dtype", "should be float64 or float32"),
    Wrong("scale unknown", base_has("scale: sqrt"), 6, "base", "scale", "should be 1/sqrt(d_k) or none or 1/d_k or"),
    Wrong("scale NaN", base_has("scale: .nan"), 6, "base", "scale", "should be 1/sqrt(d_k) or none or 1/d_k or"),
    Wrong("figures of no case", ("cases:", "figures: [bse]\ncases:"), 2, None, "figures.0", "did you mean base?"),
    Wrong("figures of a list", ("cases:", "figures: [[base]]\ncases:"), 2, None, "figures.0", "should be text"),
    Wrong("figures unknown", ("cases:", "figures: some\ncases:"), 2, None, "figures", "should be all or none or a list"),
    Wrong("figures twice", ("cases:", "figures: [base, base]\ncases:"), 2, None, "figures", "twice"),
    Wrong("causal true", base_has("mask: {causal: true}"), 6, "base", "mask.causal", "should be top_left or bottom_right"),
    Wrong("empty_row 0", base_has("mask: {empty_row: 0}"), 6, "base", "mask.empty_row", "should be zero or nan or uniform or error"),
    Wrong(
        "fill without a softmax",
        base_has("softmax: none\n    mask: {fill: -5}"),
        7,
        "base",
        "mask.fill",
        "would be a weight without a softmax",
    ),
    Wrong("endless source", base_has(f"source: {'a' * 1001}"), 6, "base", "source", "has 1,001 letters, should have at most 1000"),
    Wrong("minus of an article", x_is("[[1, \u22122], [3, 4]]"), 7, "base", "parameters.x.0.1", "another character (U+2212); write -2"),
    Wrong("dash for a minus", base_has("scale: \u20130.5"), 6, "base", "scale", "another character (U+2013); write -0.5"),
    Wrong("no space behind a colon", ("heads: 2", "heads:2"), 6, None, None, "write a colon and a space between a key and its value"),
    Wrong("no colon", ("heads: 2", "heads 2"), 6, None, None, "write a colon and a space between a key and its value"),
    Wrong("no space before a list", x_is("[[1, 2], [3, 4]]\n      v:[[1]]"), 9, None, None, "write a colon and a space between"),
    Wrong("no space in braces", base_has("sizes: {Lq:2}"), 6, "base", "sizes.Lq:2", "write a colon and a space: Lq: 2"),
    Wrong("no colon in braces", base_has("sizes: {Lq 2}"), 6, "base", "sizes.Lq 2", "write a colon and a space: Lq: 2"),
    Wrong("weights [in, out]", WIDE, 5, "base", "parameters.w_q", "weights are stored [out, in], so give its transpose"),
    Wrong("weights [in, out] of many heads", MANY, 7, "base", "parameters.w_q", "weights are stored [out, in], so give its transpose"),
    Wrong("endless title", base_has(f"title: {'a' * 201}"), 6, "base", "title", "has 201 letters, should have at most 200"),
    Wrong("endless look", base_has(f"look: {'a' * 1001}"), 6, "base", "look", "has 1,001 letters, should have at most 1000"),
    Wrong("endless token", ("[a, b]", f"[a, {'b' * 41}]"), 4, "base", "tokens.1", "has 41 letters, should have at most 40"),
    Wrong("endless description", ("Small.", "a" * 1001), 1, None, "description", "has 1,001 letters, should have at most 1000"),
    # files that are no suite
    Wrong("empty file", b"", None, None, None, "is empty, should hold a mapping"),
    Wrong("comment only", "# cases:\n", None, None, None, "is empty, should hold a mapping"),
    Wrong("list", "- base\n", None, None, None, "holds a list, should hold a mapping"),
    Wrong("text", "base\n", None, None, None, "holds text, should hold a mapping"),
    Wrong("no cases", "description: None.\n", None, None, None, "cases is missing"),
    Wrong("cases empty", "cases: {}\n", 1, None, "cases", "is empty; give at least one"),
    Wrong("cases a list", "cases: [base]\n", 1, None, "cases", "is a list, should be a mapping"),
    Wrong("case a list", variant_is("[1]"), 15, "variant", None, "is a list, should be a mapping"),
    Wrong("case text", variant_is("base"), 15, "variant", None, "is text (base), should be a mapping"),
    Wrong("case null", variant_is("null"), 15, "variant", None, "is nothing (null), should be a mapping"),
    Wrong("not YAML", ("[a, b]", "[a, b"), 5, None, None, "that begins on line 4: did not find expected ',' or ']'"),
    Wrong("colon in text", ("Small.", "Small: tiny"), 1, None, None, 'quote a text that holds ": "'),
    Wrong("two documents", text() + "---\n" + text(), 18, None, None, "remove the line ---"),
    Wrong("not UTF-8", text("Small", "Sm\xe4ll").encode("latin-1"), 1, None, None, "byte 0xe4 is not UTF-8"),
    Wrong("UTF-16", text().encode("utf-16"), 1, None, None, "is not UTF-8"),
    Wrong("control character", text("[a, b]", "[a, \x07]"), 4, None, None, "control characters are not allowed"),
    Wrong("NUL", text("[a, b]", "[a, \0]"), 4, None, None, "control characters are not allowed"),
    # what YAML allows and a suite does not
    Wrong("tab", ("    heads: 2", "\theads: 2"), 5, None, None, "indent with spaces, not with tabs"),
    Wrong("tag on text", ("Small.", "!!python/object/apply:os.getcwd []"), 1, None, "description", "!!python/object/apply:os.getcwd"),
    Wrong("tag on a list", x_is("!!python/tuple [[1, 2], [3, 4]]"), 7, "base", "parameters.x", "tag !!python/tuple is not supported"),
    Wrong("tag on a number", heads_is("!!int 2"), 5, "base", "heads", "tag !!int is not supported; write the plain value"),
    Wrong("merge key", text("base:", "base: &b", "extends: base", "<<: *b"), 16, "variant", None, "use `extends`"),
    Wrong("undefined alias", x_is("*x"), 7, None, None, "undefined alias"),
    Wrong("alias in itself", x_is("&x [*x, *x]"), 7, None, None, "an alias that holds itself"),
    Wrong("case in itself", "cases: &c\n  base: *c\n", 1, None, None, "an alias that holds itself"),
    Wrong("alias bomb", text(*x_is("\n        - &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + BOMB)), 13, None, None, "aliases repeat more than"),
    Wrong("nested deep", x_is("[" * 400 + "1" + "]" * 400), 7, None, None, "nested too deeply"),
    Wrong("nested very deep", x_is("[" * 100_000), 7, None, None, "nesting depth"),
    # extends
    Wrong("circle", ("heads: 2", "extends: variant"), 5, "base", "extends", "goes in a circle: base -> variant -> base"),
    Wrong("circle of one", ("extends: base", "extends: variant"), 16, "variant", "extends", "goes in a circle: variant -> variant"),
    Wrong("unknown case", ("extends: base", "extends: bas"), 16, "variant", "extends", "no case bas in this suite; did you mean base?"),
    Wrong(
        "no other case",
        ("  variant:\n    extends: base\n    heads: 1\n", "  variatn:\n    extends: variant\n"),
        16,
        "variatn",
        "extends",
        "known: base",
    ),
    Wrong("extends a list", ("extends: base", "extends: [base]"), 16, "variant", "extends", "is a list, should be the name of a case"),
    Wrong("extends null", ("extends: base", "extends: null"), 16, "variant", "extends", "should be the name of a case"),
    # parameters
    Wrong("missing parameter", ("      w_k: [[1, 0], [0, 1]]\n", ""), 6, "base", "parameters.w_k", "give all of w_q, w_k and w_v"),
    Wrong("no parameters", "cases:\n  base: {heads: 1}\n", 2, "base", "parameters", "a case begins at"),
    Wrong("two beginnings", ("w_o:", "q: [[1, 2], [3, 4]]\n      w_o:"), 6, "base", "parameters", "this one gives x and q; keep one"),
    Wrong("q alone", "cases:\n  base:\n    parameters: {q: [[1]], v: [[1]]}\n", 3, "base", "parameters.k", "give all of q, k and v"),
    Wrong("b_o without w_o", ("      w_o: [[1, 0], [0, 1]]\n", ""), 6, "base", "parameters.w_o", "is missing, but b_o is there"),
    Wrong("two kinds", x_is("{grid: {}, normal: {seed: 1}}"), 7, "base", "parameters.x", "says grid and normal; choose one"),
    Wrong("grid period zero", x_is("{grid: {m: 0}}"), 7, "base", "parameters.x.grid.m", "is 0, should be at least 1"),
    Wrong("negative std", x_is("{normal: {seed: 1, std: -1}}"), 7, "base", "parameters.x.normal.std", "should be more than 0"),
    Wrong("no seed", x_is("{normal: {std: 1}}"), 7, "base", "parameters.x.normal", "seed is missing"),
    Wrong("ragged", x_is("[[1, 2], [3]]"), 7, "base", "parameters.x.1", "has length 1, the first one has 2"),
    Wrong("number among lists", x_is("[[1, 2], 3]"), 7, "base", "parameters.x.1", "is a number (3), should be a list of 2"),
    Wrong("zero tokens", x_is("[]"), 7, "base", "parameters.x", "is empty"),
    Wrong("tokens of no width", x_is("[[], []]"), 7, "base", "parameters.x", "is empty; give at least one token"),
    Wrong("tokens: none", ("[a, b]", "[]"), 4, "base", "tokens", "is empty"),
    Wrong("tokens: one too many", ("[a, b]", "[a, b, c]"), 4, "base", "tokens", "names 3, but the case has Lq = 2"),
    # sizes and shapes
    Wrong("heads do not divide", heads_is("3"), 5, "base", "heads", "3 heads do not divide"),
    Wrong("heads of a variant do not divide", ("heads: 1", "heads: 3"), 17, "variant", "heads", "use a divisor of 2"),
    Wrong("x in one dimension", x_is("[1, 2]"), 7, "base", "parameters.x", "has shape [2], should be [Lq, d_model]"),
    Wrong("x in four dimensions", x_is("[[[[1, 2], [3, 4]]]]"), 7, "base", "parameters.x", "has shape [1, 1, 2, 2], should be"),
    Wrong("wrong shape", ("[0.5, 0.5]", "[0.5]"), 12, "base", "parameters.b_o", "should be [d_out] = [2], for d_out = 2 as in w_o"),
    Wrong("wrong width", ("w_q: [[1, 0], [0, 1]]", "w_q: [[1, 0, 0], [0, 1, 0]]"), 8, "base", "parameters.w_q", "d_model = 2 as in x", 2),
    Wrong("size against x", base_has("sizes: {Lq: 3}"), 8, "base", "parameters.x", "has shape [2, 2], should be [Lq, d_model] = [3, 2]"),
    Wrong("batch against x", base_has("sizes: {B: 3}"), 8, "base", "parameters.x", "should be [B, Lq, d_model] = [3, 2, 2]"),
    Wrong("size zero", base_has("sizes: {Lq: 0}"), 6, "base", "sizes.Lq", "should be at least 1"),
    Wrong("size unknown", DRAWN.replace("Lq: 2, ", ""), 3, "base", "sizes.Lq", "is needed"),
    Wrong("one size twice", TWICE, 3, "base", "sizes.d_vv", "is 3, but in this case it is the same as d_kv = 2; leave one of them out"),
    Wrong("too large", DRAWN.replace("Lq: 2", "Lq: 100000"), 2, "base", None, "more than limits.max_array_mb = 1"),
    Wrong("scores too large", DRAWN.replace("Lq: 2", "Lq: 1000"), 2, "base", None, "[1, 1000, 1000] would take 8 MB"),
    Wrong("exact numbers too large", DRAWN.replace("Lq: 2", "Lq: 300"), 2, "base", None, "more than limits.max_truth_mb = 110"),
    Wrong("literal too large", x_is(f"[[{'1, ' * 130_000}1]]"), 7, "base", "parameters.x", "limits.max_array_mb"),
    # drawn parameters
    Wrong("draws unknown", DRAWN.replace("[x]", "[x, wq]"), 4, "base", "torch_draws.order.1", "did you mean w_q?"),
    Wrong("draws twice", DRAWN.replace("[x]", "[x, x]"), 4, "base", "torch_draws.order", "twice"),
    Wrong("draws nothing", DRAWN.replace("[x]", "[]"), 4, "base", "torch_draws.order", "is empty"),
    Wrong("draws without a seed", DRAWN.replace("seed: 0, ", ""), 4, "base", "torch_draws", "seed is missing"),
    Wrong("draws what is given", base_has("torch_draws: {seed: 0, order: [w_q]}"), 9, "base", "parameters.w_q", "keep one of them"),
    Wrong(
        "seed too large",
        x_is(f"{{normal: {{seed: {2**63}}}}}"),
        7,
        "base",
        "parameters.x.normal.seed",
        f"seeds and sizes end at {2**63 - 1}",
    ),
    # rotation and other positions
    Wrong("columns of no pair", base_has("rotary: {pairing: half}"), 6, "base", "rotary", "d_k = 1 is odd; make d_k even"),
    Wrong("columns left over", ODD, 3, "base", "rotary", "d_k = 3 is odd; add dims, an even number up to d_k"),
    Wrong("odd dims", ODD.replace("half", "half, dims: 3"), 3, "base", "rotary.dims", "is 3, should be even and at most d_k = 3"),
    Wrong("yarn, base 1", scaling_is(YARN, 1), 6, "base", "rotary.base", "is 1, should be more than 1 for yarn"),
    Wrong("yarn, fast 1", scaling_is(YARN + ", beta_fast: 1"), 6, "base", "rotary.scaling.beta_fast", "more than beta_slow = 1"),
    Wrong("yarn, slow 32", scaling_is(YARN + ", beta_slow: 32"), 6, "base", "rotary.scaling.beta_slow", "less than beta_fast = 32"),
    Wrong("yarn, tiny", scaling_is(YARN + ", beta_slow: 1e-310"), 6, "base", "rotary.scaling.beta_slow", "should be at least 1e-06"),
    Wrong(
        "yarn, low",
        scaling_is(YARN + ", low: 1"),
        6,
        "base",
        "rotary.scaling.low",
        "has factor, original_length, beta_slow, beta_fast; remove",
    ),
    Wrong(
        "yarn of no length", scaling_is("rule: yarn, factor: 4"), 6, "base", "rotary.scaling", "original_length is missing; yarn needs it"
    ),
    Wrong("llama3, equal", scaling_is(LLAMA + ", low: 2, high: 2"), 6, "base", "rotary.scaling.low", "is 2, should be less than high = 2"),
    Wrong("llama3, low 5", scaling_is(LLAMA + ", low: 5"), 6, "base", "rotary.scaling.low", "is 5, should be less than high = 4"),
    Wrong("llama3, high 0.5", scaling_is(LLAMA + ", high: 0.5"), 6, "base", "rotary.scaling.high", "is 0.5, should be more than low = 1"),
    Wrong(
        "linear, length",
        scaling_is("rule: linear, factor: 4, original_length: 7"),
        6,
        "base",
        "rotary.scaling.original_length",
        "is not used by linear, which has factor; remove it",
    ),
    Wrong(
        "linear, two more",
        scaling_is("rule: linear, factor: 4, beta_fast: 3, original_length: 7"),
        6,
        "base",
        "rotary.scaling.beta_fast",
        "is not used by linear",
        2,
    ),
    Wrong("ntk, huge factor", scaling_is("rule: ntk, factor: 1e200"), 6, "base", "rotary.scaling.factor", "should be at most 1000000"),
    Wrong("t5, all alone", T5, 5, "base", "t5.longest", "is 2, should be more than 2"),
    # options of masks and norms that need others
    Wrong(
        "own diagonal alone", base_has("mask: {causal: bottom_right, diagonal: own}"), 6, "base", "mask.diagonal", "add mask.key_lengths"
    ),
    Wrong("own diagonal at the top", base_has(OWN), 6, "base", "mask.diagonal", "add mask.causal: bottom_right"),
    Wrong("zero_vector with eps", base_has(ZERO), 6, "base", "qk_norm.zero_vector", "where eps is 0, but it is 1e-06"),
    # claims
    Wrong("claim on no array", ("output:", "outputs:"), 14, "base", "claims.outputs", "did you mean output?"),
    Wrong("claim out of range", claim_is('{at: [2], values: ["1", "2"]}'), 14, "base", "claims.output.at", "count from 0"),
    Wrong("claim too deep", claim_is('{at: [0, 0, 0], values: "1"}'), 14, "base", "claims.output.at", "lies outside output"),
    Wrong("claim at -1", claim_is('{at: [-1], values: ["1", "2"]}'), 14, "base", "claims.output.at.0", "should be at least 0"),
    Wrong("claim at no list", claim_is('{at: 0, values: ["1", "2"]}'), 14, "base", "claims.output.at", "should be a list"),
    Wrong("claim without quotes", claim_is('{at: [0], values: [1.9, "2.0"]}'), 14, "base", "claims.output.values.0", "in quotes"),
    Wrong("claim in words", claim_is('{at: [0], values: ["about 2", "2.0"]}'), 14, "base", "claims.output.values.0", "in quotes"),
    Wrong("claim nested wrongly", claim_is('{at: [0], values: "1.9"}'), 14, "base", "claims.output.values", "should be a list of 2"),
    Wrong("claim too short", claim_is('{at: [0], values: ["1.9"]}'), 14, "base", "claims.output.values", "is a list of 1, should be"),
    Wrong("claim without values", claim_is("{at: [0]}"), 14, "base", "claims.output", "values is missing"),
    Wrong("claim misspelt", claim_is('[{value: "1"}]'), 14, "base", "claims.output.0.value", "did you mean values?", 2),
    Wrong("claim with no end", claim_is('{at: [0, 0], values: "1e999999999"}'), 14, "base", "claims.output.values", "in quotes"),
    # sweeps
    Wrong("sweep, no mapping", swept("[1, 2]"), 17, "variant", "sweep", "is a list, should be a mapping"),
    Wrong("sweep, empty", swept("{}"), 17, "variant", "sweep", "is empty; give at least one"),
    Wrong("sweep of nothing", swept("{skip: invalid}"), 17, "variant", "sweep", "lists no option; add one"),
    Wrong("sweep, no list", swept("{heads: 2}"), 17, "variant", "sweep.heads", "is a number (2), should be a list"),
    Wrong("sweep, empty list", swept("{heads: []}"), 17, "variant", "sweep.heads", "is empty; give at least one"),
    Wrong("sweep, choice twice", swept("{scale: [2, 2.0]}"), 17, "variant", "sweep.scale", "names a number (2.0) twice"),
    Wrong("sweep, unknown rule", swept("{heads: [1, 2], skip: all}"), 17, "variant", "sweep.skip", "should be none or invalid"),
    Wrong("sweep of titles", swept("{title: [a, b]}"), 17, "variant", "sweep.title", "cannot be swept"),
    Wrong(
        "sweep of a part of what is swept", swept("{rotary: [null], rotary.base: [1]}"), 17, "variant", "sweep.rotary.base", "lies within"
    ),
    Wrong(
        "sweep, too many",
        swept("{heads: [1, 2], scale: [1, 2, 3]}"),
        17,
        "variant",
        "sweep",
        "6 cases, more than limits.max_sweep_cases = 5",
    ),
    Wrong("sweep, unclear word", swept("{heads: [1, no]}"), 17, "variant", "sweep.heads.1", "no changes its meaning between YAML versions"),
    Wrong("sweep, unknown option", swept("{hedas: [1, 2]}"), 17, "variant_hedas_1", "hedas", "did you mean heads?"),
    Wrong("sweep, unknown part", swept("{sizes.dk: [1, 2]}"), 17, "variant_dk_1", "sizes.dk", "did you mean d_k?"),
    Wrong("sweep, in a number", swept("{heads.more: [1]}"), 17, "variant_more_1", "heads", "is a mapping, should be a whole number"),
    Wrong("sweep, unknown kind", swept("{softmax: [plain, plus_two]}"), 17, "variant_softmax_plus_two", "softmax", "should be plain or"),
    Wrong(
        "sweep, unknown kind, skipped",
        swept("{softmax: [plain, plus_two], skip: invalid}"),
        17,
        "variant_softmax_plus_two",
        "softmax",
        "should be plain or",
    ),
    Wrong(
        "sweep, no sense",
        swept("{scale: [1, none], heads: [1, 3]}"),
        17,
        "variant_scale_1_heads_3",
        "heads",
        "use a divisor of 2 (in the combination scale: 1, heads: 3)",
    ),
    Wrong(
        "sweep, a choice that never makes sense",
        swept("{scale: [1, none], heads: [1, 3], skip: invalid}"),
        17,
        "variant_scale_1_heads_3",
        "heads",
        "no case is left with heads: 3 (in the combination scale: 1, heads: 3)",
    ),
    Wrong(
        "sweep, name of a case",
        swept("{heads: [1]}", "  variant_heads_1: {extends: base}\n"),
        17,
        "variant",
        "sweep",
        "called variant_heads_1",
    ),
    Wrong("sweep, one name", swept("{tokens: [[a, b], [A, B]]}"), 17, "variant", "sweep", "as is that of tokens: a b"),
    Wrong(
        "sweep, long name",
        ("variant:\n    extends: base\n    heads: 1", f"{'v' * 95}:\n    sweep: {{heads: [1]}}"),
        16,
        "v" * 95,
        "sweep",
        "have 103 letters",
    ),
    Wrong(
        "sweep extended",
        swept("{heads: [1, 2]}", "  last: {extends: variant}\n"),
        18,
        "last",
        "extends",
        "is a sweep and no case; extend one",
    ),
    Wrong(
        "sweep in a circle",
        ("extends: base\n    heads: 1", "extends: variant_heads_1\n    sweep: {heads: [1, 2]}"),
        16,
        "variant_heads_1",
        "extends",
        "circle",
    ),
    Wrong(
        "sweep, a skipped case extended",
        swept("{heads: [1, 2], sizes.d_k: [null, 1], skip: invalid}", "  last: {extends: variant_heads_1_d_k_1, heads: 2}\n"),
        18,
        "last",
        "extends",
        "variant_heads_1_d_k_1 is skipped: has shape",
    ),
    Wrong("sweep, a slip in its case", swept("{heads: [1, 2]}\n    hedas: 2"), 18, "variant_heads_1", "hedas", "did you mean heads?"),
    # files of parameters, made by `broken_files`
    Wrong("missing file", x_is("{file: missing.npy}"), 7, "base", "parameters.x.file", "is not there; it is looked for in config/suites"),
    Wrong("no file name", x_is("{file: ''}"), 7, "base", "parameters.x.file", "is not there"),
    Wrong("long file name", x_is(f"{{file: {'a' * 5000}.npy}}"), 7, "base", "parameters.x.file", "is not there"),
    Wrong("braces in a file name", x_is("{file: 'x{y}.npy'}"), 7, "base", "parameters.x.file", "has braces in its name"),
    Wrong("NUL in a file name", x_is('{file: "x\\0.npy"}'), 7, "base", "parameters.x.file", "'x\\x00.npy' is not there"),
    Wrong("absolute path", x_is("{file: /tmp/x.npy}"), 7, "base", "parameters.x.file", "lies outside the suites' folder"),
    Wrong("path that climbs", x_is("{file: ../x.npy}"), 7, "base", "parameters.x.file", "lies outside the suites' folder"),
    Wrong("pickled file", x_is("{file: pickle.npy}"), 7, "base", "parameters.x.file", "is not a .npy file (pickles"),
    Wrong("text file", x_is("{file: text.npy}"), 7, "base", "parameters.x.file", "is not a .npy file"),
    Wrong("zipped file", x_is("{file: zipped.npy}"), 7, "base", "parameters.x.file", "is not a .npy file"),
    Wrong("file of nothing", x_is("{file: nothing.npy}"), 7, "base", "parameters.x.file", "is not a .npy file"),
    Wrong("truncated file", x_is("{file: truncated.npy}"), 7, "base", "parameters.x.file", "is damaged or cut short"),
    Wrong("file that promises too much", x_is("{file: promises.npy}"), 7, "base", "parameters.x.file", "is damaged or cut short"),
    Wrong("file of objects", x_is("{file: objects.npy}"), 7, "base", "parameters.x.file", "holds Python objects"),
    Wrong("complex file", x_is("{file: complex.npy}"), 7, "base", "parameters.x.file", "holds complex128, not real numbers"),
    Wrong("boolean file", x_is("{file: boolean.npy}"), 7, "base", "parameters.x.file", "holds bool, not real numbers"),
    Wrong("empty file of an array", x_is("{file: empty.npy}"), 7, "base", "parameters.x.file", "is empty, of shape [0, 2]"),
    Wrong("oversized file", x_is("{file: oversized.npy}"), 7, "base", "parameters.x.file", "larger than limits.max_array_mb"),
    Wrong("file with NaN", x_is("{file: nan.npy}"), 7, "base", "parameters.x.file", "holds NaN"),
    Wrong("tensor of no file", x_is("{grid: {}, tensor: x}"), 7, "base", "parameters.x", "file is missing; add it"),
    Wrong("tensor of an array file", x_is("{file: whole.npy, tensor: x}"), 7, "base", "parameters.x.file", "leave `tensor` out"),
    Wrong("tensors without a name", x_is("{file: some.safetensors}"), 7, "base", "parameters.x.file", "holds tensors by name; say which"),
    Wrong("no such tensor", x_is("{file: some.safetensors, tensor: layr.x}"), 7, "base", "parameters.x.file", "did you mean layer.x?"),
    Wrong("tensor of integers", x_is("{file: some.safetensors, tensor: whole}"), 7, "base", "parameters.x.file", "holds 'whole' in I64"),
    Wrong("tensor with NaN", x_is("{file: some.safetensors, tensor: nan}"), 7, "base", "parameters.x.file", "holds NaN"),
    Wrong("tensor too large", x_is("{file: some.safetensors, tensor: large}"), 7, "base", "parameters.x.file", "larger than limits.max"),
    Wrong("tensor of another shape", x_is("{file: some.safetensors, tensor: narrow}"), 7, "base", "parameters.x", "has shape [2]"),
    Wrong("damaged tensors", x_is("{file: damaged.safetensors, tensor: x}"), 7, "base", "parameters.x.file", "is no .safetensors file"),
    Wrong("file of another shape", x_is("{file: narrow.npy}"), 7, "base", "parameters.x", "has shape [2], should be [Lq, d_model]"),
]

NAMES = [
    Wrong(".yml", renamed("small.yml"), None, None, None, "small.yml: the name of a suite ends in .yaml; rename the file"),
    Wrong(".YAML", renamed("small.YAML"), None, None, None, "ends in .yaml; rename the file"),
    Wrong("capital", renamed("Small.yaml"), None, None, None, "small letters, digits and _; rename the file"),
    Wrong("space", renamed("my suite.yaml"), None, None, None, "small letters, digits and _; rename the file"),
    Wrong("reserved name", renamed("archive.yaml"), None, None, None, "archive is taken by a folder of results/"),
    Wrong("no suite", lambda folder: (folder / "small.yaml").unlink(), None, None, None, "holds no suite; add one"),
    Wrong("a folder", lambda folder: (folder / "other.yaml").mkdir(), None, None, None, "other.yaml: cannot be read: Is a directory"),
]

CONFIGS = [
    Wrong("unknown key", ("suites:", "suite:"), 1, None, "suite", "did you mean suites?"),
    Wrong("unknown gate", ("float64", "float46"), 2, None, "gates.float46", "did you mean float64?"),
    Wrong("duplicate key", ("gates:", "suites: all\ngates:"), 2, None, "suites", "duplicate key, first on line 1"),
    Wrong("missing suite", ("all", "[smal]"), None, None, "suites", "no suite smal in config/suites; did you mean small?"),
    Wrong("suites text", ("all", "small"), 1, None, "suites", "should be all or a list; write [small]"),
    Wrong("suites empty", ("all", "[]"), 1, None, "suites", "is empty; give at least one"),
    Wrong("suites without a value", ("all", ""), 1, None, "suites", "has no value"),
    Wrong("suites twice", ("all", "[small, small]"), 1, None, "suites", "twice"),
    Wrong("suites a path", ("all", "[../small]"), 1, None, "suites.0", "should be a name of small letters, digits and _"),
    Wrong("gate negative", ("1e-12", "-1e-12"), 2, None, "gates.float64", "should be more than 0"),
    Wrong("gate in quotes", ("1e-12", '"1e-12"'), 2, None, "gates.float64", "should be a finite number; write the number without quotes"),
    Wrong("gate infinite", ("1e-12", ".inf"), 2, None, "gates.float64", "should be a finite number"),
    Wrong("gates a number", ("{float64: 1e-12}", "1e-12"), 2, None, "gates", "should be a mapping"),
    Wrong("digits too many", ("digits: 3", "digits: 13"), 3, None, "looks.digits", "is 13, should be at most 12"),
    Wrong("digits 3.0", ("digits: 3", "digits: 3.0"), 3, None, "looks.digits", "should be a whole number"),
    Wrong("no cases of a sweep", ("max_sweep_cases: 5", "max_sweep_cases: 0"), 4, None, "limits.max_sweep_cases", "should be at least 1"),
    Wrong("limit zero", ("max_array_mb: 1", "max_array_mb: 0"), 4, None, "limits.max_array_mb", "should be more than 0"),
    Wrong(
        "archive with NUL", CONFIG + 'archive: "a\\0.zip"\n', 5, None, "archive", "(a\\x00.zip), should be text without line ends and other"
    ),
    Wrong("endless path", CONFIG + f"submission: {'a/' * 2500}\n", 5, None, "submission", "has 5,000 letters, should have at most 1000"),
    Wrong("empty", b"", None, None, None, "is empty, should hold a mapping such as `suites: all`"),
    Wrong("a list", "- small\n", None, None, None, "holds a list, should hold a mapping"),
    Wrong("not UTF-8", b"suites: all # \xe4\n", 1, None, None, "byte 0xe4 is not UTF-8"),
    Wrong("not YAML", ("all", "[all"), 2, None, None, "not YAML"),
    Wrong("tag", ("all", "!!python/name:os.system x"), 1, None, "suites", "tag !!python/name:os.system is not supported"),
    Wrong("no file", lambda folder: (folder.parent / "config.yaml").unlink(), None, None, None, "cannot be read: No such file"),
]

OVERRIDES = [
    ({"suites": ["nope"]}, "suites: no suite nope in config/suites; known: small"),
    ({"suites": "small"}, "--config: suites: is text (small), should be all or a list; write [small]"),
    ({"gates": "x"}, "--config: gates: is text (x), should be a mapping"),
    ({"gates": {"float64": "tiny"}}, "--config: gates.float64: is text (tiny), should be a finite number"),
    ({"gates": {"float64": 10**400}}, "--config: gates.float64: is a number"),
    ({"gates": {1: 2}}, "--config: gates.1: unknown key"),
    ({"typo": 1}, "--config: typo: unknown key; known: suites"),
    ({"archive": 3}, "--config: archive: is a number (3), should be text"),
    ({"looks": {"digits": "9" * 5000}}, "--config: looks.digits: is text (99999"),
    ({"looks": {"digits": 10**400}}, "--config: looks.digits: is a number (inf), should be a whole number"),
    ({"looks": {"digits": -(16**5000)}}, "--config: looks.digits: is a number (-inf)"),
    ({"suites": [16**5000]}, "--config: suites.0: is a number (inf), should be"),
    ({"gates": {"float64": "1e" + "9" * 5000}}, "--config: gates.float64: is a number (inf), should be a finite number"),
    (
        {"gates": {"float64": "\u22121"}},
        "--config: gates.float64: is text (\u22121), should be a finite number; its minus is another character",
    ),
    ({"suites": ["a" * 5000]}, "suites: no suite aaaa"),
    ({"keep_going": "maybe"}, "--config: keep_going: is text (maybe), should be true or false"),
]


def broken_files(folder: Path) -> None:
    """The .npy files that rows of SUITES name."""
    np.save(folder / "whole.npy", np.ones((2, 2)))
    whole = (folder / "whole.npy").read_bytes()
    (folder / "pickle.npy").write_bytes(np.array([1, None]).dumps())
    (folder / "text.npy").write_text("1 2\n3 4\n", encoding="utf-8")
    with open(folder / "zipped.npy", "wb") as file:
        np.savez(file, np.ones((2, 2)))
    (folder / "nothing.npy").write_bytes(b"")
    (folder / "truncated.npy").write_bytes(whole[:-8])
    (folder / "promises.npy").write_bytes(whole.replace(b"(2, 2), }" + b" " * 14, b"(99999999, 99999999), }"))
    np.save(folder / "objects.npy", np.array([[1, None]]), allow_pickle=True)
    np.save(folder / "complex.npy", np.ones((2, 2), complex))
    np.save(folder / "boolean.npy", np.ones((2, 2), bool))
    np.save(folder / "empty.npy", np.ones((0, 2)))
    np.save(folder / "oversized.npy", np.ones((1000, 126)))
    np.save(folder / "nan.npy", np.full((2, 2), np.nan))
    np.save(folder / "narrow.npy", np.ones(2))
    tensors = {"layer.x": np.ones((2, 2)), "whole": np.ones((2, 2), int), "nan": np.full((2, 2), np.nan), "narrow": np.ones(2)}
    save_file(tensors | {"large": np.ones((1000, 126))}, folder / "some.safetensors")
    (folder / "damaged.safetensors").write_bytes((folder / "some.safetensors").read_bytes()[:-8])


def content(change: tuple[str, str] | str | bytes, valid: str) -> bytes:
    """The file that `change` makes of `valid`."""
    if isinstance(change, tuple):
        assert change[0] in valid
        change = valid.replace(*change, 1)
    return change if isinstance(change, bytes) else change.encode("utf-8")


def write(root: Path, suite: bytes = SUITE.encode(), config: bytes = CONFIG.encode()) -> Path:
    """A config folder in `root` with one suite, small; returns the folder of the suites."""
    folder = root / "config" / "suites"
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_bytes(suite)
    (root / "config" / "config.yaml").write_bytes(config)
    return folder


def problems_of(overrides: dict | None = None) -> list[Problem]:
    """What loading the config folder of the current directory complains about."""
    try:
        load_suites(load_config(Path("config/config.yaml"), overrides or {}), Path("config/suites"))
    except Problems as error:
        return error.problems
    return []


def check(wrong: Wrong, problems: list[Problem], file: str) -> None:
    """Whether `problems`, of `file`, are what the row `wrong` says, each in one line."""
    lines = [str(problem) for problem in problems]
    assert len(lines) == wrong.count, lines
    for line in lines:
        assert line.startswith(file)
        assert line.isprintable()
        assert len(line) < 400
    found = [line for p, line in zip(problems, lines, strict=True) if (p.line, p.case, p.field) == (wrong.line, wrong.case, wrong.field)]
    assert any(wrong.words in line for line in found), lines
    if wrong.line:
        assert found[0].startswith(f"{file}:{wrong.line}: ")


def named(rows: list[Wrong]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wrong", rows, ids=lambda row: row.name)


def test_valid_suite_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    assert problems_of() == []


def test_the_largest_seed_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, suite=DRAWN.replace("seed: 0", f"seed: {2**63 - 1}").encode())
    assert problems_of() == []


@named(SUITES)
def test_wrong_suite(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken_files(write(tmp_path, suite=content(wrong.change, SUITE)))
    start = time.process_time()
    check(wrong, problems_of(), "config/suites/small.yaml")
    assert time.process_time() - start < 10


@named(NAMES)
def test_wrong_suite_file(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong.change(write(tmp_path))
    check(wrong, problems_of(), "config/suites")


@named(CONFIGS)
def test_wrong_config(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if callable(wrong.change):
        wrong.change(write(tmp_path))
    else:
        write(tmp_path, config=content(wrong.change, CONFIG))
    check(wrong, problems_of(), "config/config.yaml")


@pytest.mark.parametrize(("overrides", "words"), OVERRIDES, ids=[str(i) for i in range(len(OVERRIDES))])
def test_wrong_config_on_the_command_line(overrides, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    (problem,) = problems_of(overrides)
    assert words in str(problem)


def test_numbers_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    config = load_config(Path("config/config.yaml"), {"gates": {"float64": "1e-9"}, "looks": {"digits": "4"}})
    assert config["gates"]["float64"] == 1e-9 and config["looks"]["digits"] == 4


def test_a_long_chain_of_variants_loads_at_once(tmp_path, monkeypatch):
    """Each case is merged once: 1,200 variants, each of the one before it, hand down what the first one says."""
    monkeypatch.chdir(tmp_path)
    chain = "".join(f"  v{i}:\n    extends: {f'v{i - 1}' if i else 'base'}\n    title: Number {i}\n" for i in range(1200))
    folder = write(tmp_path, suite=(SUITE + chain).encode())
    start = time.process_time()
    cases = load_suites(load_config(Path("config/config.yaml"), {}), folder)["small"]["cases"]
    assert time.process_time() - start < 30
    last = cases["v1199"]
    assert (last["title"], last["heads"], last["claims"]) == ("Number 1199", 2, [])
    assert last["parameters"] == cases["base"]["parameters"] and last["extends"] == "v1198"


FIRST = text("Small.", "010", "heads: 2", "head: 2", "heads: 1", "parameters: {b_v: null}")
SECOND = text("output:", "outptu:", "variant:", "my variant:", "extends: base", "extends: bas")


def test_all_problems_of_all_suites_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path, suite=FIRST.encode())
    (folder / "second.yaml").write_bytes(SECOND.encode())
    (folder / "third.yaml").write_bytes(text("[3, 4]", "[3, x]", "[0.5, 0.5]", "[.nan, 1]").encode())
    (folder / "fourth.yaml").write_bytes(b"\xff")
    (folder / "fifth.yml").write_bytes(b"")
    assert [(Path(p.file).name, p.line, p.case, p.field) for p in problems_of()] == [
        ("fifth.yml", None, None, None),
        ("fourth.yaml", 1, None, None),
        ("second.yaml", 14, "base", "claims.outptu"),
        ("second.yaml", 15, "my variant", None),
        ("second.yaml", 16, "my variant", "extends"),
        ("small.yaml", 1, None, "description"),
        ("small.yaml", 5, "base", "head"),
        ("small.yaml", 17, "variant", "parameters.b_v"),
        ("third.yaml", 7, "base", "parameters.x.1.1"),
        ("third.yaml", 12, "base", "parameters.b_o.0"),
    ]


# through Snakemake


def tree(project: Path) -> dict[str, bytes | None]:
    """Everything in `project` (folders as None), but for what Snakemake notes for itself."""
    folders = {path.relative_to(project).as_posix(): None for path in project.rglob("*") if path.is_dir()}
    return {name: content for name, content in (folders | contents(project)).items() if not name.startswith(".snakemake")}


def refused(project: Path, *args: str, env: dict[str, str] | None = None) -> list[str]:
    """The lines that `snakemake ARGS` says, after checking that it fails politely and leaves nothing behind."""
    before = tree(project)
    result = run(project, *args, env={"PYTHONDONTWRITEBYTECODE": "1", **(env or {})})
    said = result.stdout + result.stderr
    assert result.returncode != 0
    assert "Traceback" not in said
    assert tree(project) == before
    return [line for line in said.splitlines() if not line.startswith("Using ")]


SAMPLE = ["unknown key", "not YAML", "scores too large"]  # each alone; all of them together below


@named([row for row in SUITES if row.name in SAMPLE])
def test_snakemake_refuses_a_wrong_suite(wrong, project, monkeypatch):
    (with_suites(project) / "config" / "suites" / "small.yaml").write_bytes(
        content(wrong.change, SUITE).replace(b"Lq: 1000", b"Lq: 100000")
    )
    monkeypatch.chdir(project)
    lines = [str(problem) for problem in problems_of()]
    assert len(lines) == wrong.count
    assert refused(project) == lines


@pytest.mark.parametrize("locale", ["C", "de_DE.ISO-8859-1"])
def test_snakemake_refuses_all_wrong_suites_together(locale, project, monkeypatch):
    """In any locale and with any hash seed: each line that loading gives, in that order."""
    folder = with_suites(project, "handworked", "masks") / "config" / "suites"
    broken_files(folder)
    for i, wrong in enumerate(SUITES):
        (folder / f"wrong_{i:03}.yaml").write_bytes(content(wrong.change, SUITE))
    (folder / "logs.yaml").write_bytes(SUITE.encode())
    monkeypatch.chdir(project)
    lines = [str(problem) for problem in problems_of()]
    assert len(lines) >= len(SUITES)
    said = refused(project, env={"LC_ALL": locale, "PYTHONHASHSEED": str(len(locale))})
    latin = [line.encode("iso-8859-1", "backslashreplace").decode("utf-8", "replace") for line in lines]
    assert said == lines or (locale.endswith("ISO-8859-1") and said == latin)  # where that locale is installed, it is spoken


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("suites=[nope]", "suites: no suite nope in config/suites; known: "),
        ("gates=x", "--config: gates: is text (x), should be a mapping"),
        ("gates={float64: tiny}", "--config: gates.float64: is text (tiny), should be a finite number"),
        ("typo=1", "--config: typo: unknown key; known: suites"),
    ],
)
def test_snakemake_refuses_a_wrong_config_on_the_command_line(given, words, project):
    (line,) = refused(with_suites(project, "handworked"), "--config", given)
    assert words in line


# whatever is in the file


NASTY = (
    "null ~ -1 0 1.5 1e999 .nan 010 no none [] {} [[]] [1] [base] *a &a !t <<: ' \" # , : { } [ ] --- ... 99999999999999999999 base "
    "variant scaled x_kv {file:_whole.npy} {grid:_{}} {normal:_{seed:_1}} &a_[*a] !!set_{a} \0 \t \n \u2028 \x85 é"
)
NASTY = [word.replace("_", " ").encode() for word in NASTY.split(" ")]
WORD = re.compile(r"[A-Za-z0-9_.]+")
WORDS = [match.span() for match in WORD.finditer(SUITE)]
SPANS = st.sampled_from(WORDS) | st.tuples(st.integers(0, len(SUITE)), st.integers(0, 20)).map(lambda at: (at[0], at[0] + at[1]))
EDITS = st.lists(st.tuples(SPANS, st.sampled_from(NASTY) | st.binary(max_size=3)), min_size=1, max_size=3)


def loaded_or_refused(suite: bytes, prepare: Callable[[Path], None] = lambda folder: None) -> None:
    """Load `suite`: what comes of it can be written as JSON, or it is refused in printable lines; nothing else is raised."""
    with tempfile.TemporaryDirectory() as root:
        folder = write(Path(root), suite=suite)
        prepare(folder)
        config = load_config(Path(root, "config", "config.yaml"), {})
        try:
            json.dumps(load_suites(config, folder), allow_nan=False)
        except Problems as error:
            assert error.problems
            assert all(str(problem).isprintable() for problem in error.problems)


@settings(max_examples=150, deadline=None)
@given(EDITS)
def test_any_edit_of_a_suite_is_loaded_or_refused(edits):
    suite = SUITE.encode()
    for (start, end), new in sorted(edits, reverse=True):
        suite = suite[:start] + new + suite[end:]
    loaded_or_refused(suite)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 160), st.binary(max_size=4), st.integers(0, 160))
def test_any_edit_of_a_parameter_file_is_loaded_or_refused(at, new, length):
    def prepare(folder: Path) -> None:
        np.save(folder / "x.npy", np.ones((2, 2)))
        whole = (folder / "x.npy").read_bytes()
        (folder / "x.npy").write_bytes((whole[:at] + new + whole[at + len(new) :])[: len(whole) - length // 40])

    loaded_or_refused(text(*x_is("{file: x.npy}")).encode(), prepare)


def names(block: dict) -> set[str]:
    """The name of every option in a block of a schema, and in those within it."""
    return {name for key, rule in block.get("properties", {}).items() for name in {key} | names(rule)}


def overrides_of(values: st.SearchStrategy) -> st.SearchStrategy:
    """Mappings from options of the config, or anything, to `values`."""
    return st.dictionaries(st.sampled_from(sorted(names(schema("config")))) | st.text(max_size=3), values, max_size=3)


SHIPPED = [yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)["cases"] for path in sorted((ROOT / "config" / "suites").glob("*.yaml"))]
ALIEN = [None, True, False, 0, 1, 2, 3, -1, 7, 0.5, 1e-300, 1e300, 2**63, "", "x", "none", "1", [], [1], [[1]], [[[1]]], [1, 2], {}]
ALIEN = st.sampled_from(ALIEN)
FORMS = st.sampled_from([{"grid": {}}, {"normal": {"seed": 1}}, {"file": "x.npy"}, {"file": "."}, {"grid": {"m": 1, "den": 3}}])
NAMED = st.dictionaries(st.sampled_from(sorted(names(schema("suite")["$defs"]["case"]))), ALIEN | FORMS, max_size=3)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The place of everything in a loaded suite, as keys and indices; of a list only those of its first two items."""
    found = [path] if path else []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ():
        found += places(item, (*path, key))
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_change_of_a_shipped_case_is_loaded_or_refused(data: st.DataObject):
    """Up to three changes of one case and those that it extends: something replaced, removed, or an option of any name added."""
    suite = data.draw(st.sampled_from(SHIPPED))
    name = data.draw(st.sampled_from(sorted(suite)))
    cases = {}
    while name:
        cases[name] = copy.deepcopy(suite[name])
        name = cases[name].get("extends")
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(places(cases) or [("c",)]))
        inner = reduce(lambda value, key: value[key], above, cases)
        match data.draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                inner[last] = copy.deepcopy(data.draw(ALIEN | FORMS | NAMED))
            case "remove" if last in inner or isinstance(inner, list):
                del inner[last]
            case "add" if isinstance(inner, dict):
                inner |= copy.deepcopy(data.draw(NAMED))
    loaded_or_refused(yaml.safe_dump({"cases": cases}).encode())


TEXTS = ALIEN | st.text(max_size=5) | st.integers()
VALUES = st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=2) | overrides_of(inner), max_leaves=5)


@settings(max_examples=200, deadline=None)
@given(overrides_of(VALUES))
def test_any_override_of_the_config_is_loaded_or_refused(overrides: dict):
    with tempfile.TemporaryDirectory() as root:
        write(Path(root))
        try:
            json.dumps(load_config(Path(root, "config", "config.yaml"), overrides), allow_nan=False)
        except Problems as error:
            assert error.problems and all(str(problem).isprintable() for problem in error.problems)
