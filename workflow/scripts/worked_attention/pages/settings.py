"""The settings of a case as people write them: dotted names and values."""

OPTIONS = (  # of a resolved case, in the order of the stages
    *("dtype", "precision", "heads", "kv_heads", "extra_key", "sinusoidal", "qk_norm", "rotary"),
    *("scale", "softcap", "alibi", "t5", "mask", "softmax", "dropout", "backward", "torch_draws"),
)


def settings(case: dict) -> list[tuple[str, str]]:
    """(option, value) of every option that the case has, those inside a mapping by their dotted names."""
    found: list[tuple[str, str]] = []

    def add(name: str, value: object) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{name}.{key}", inner)
        elif value is not None:
            found.append((name, ", ".join(map(str, value)) if isinstance(value, list) else f"{value}"))

    for option in OPTIONS:
        add(option, case[option])
    if any(case[option] for option in ("sinusoidal", "rotary", "alibi", "t5")):
        for key in ("query_positions", "key_positions"):
            add(f"positions.{'queries' if key.startswith('query') else 'keys'}", case[key])
    return found
