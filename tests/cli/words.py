"""Command lines made of others."""


def instead(base, *options):
    """Return the words of ``base`` with ``options``, which replace the options of the same names."""
    words = list(base)
    for flag in [one for one in options if str(one).startswith("--")]:
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    return [*words, *options]
