"""Speed, accuracy and memory beside the peers, in one run: ``make bench`` or ``python -m benchmarks``.

One script per claim, each with ``run(settings) -> list[Line]``. Times are process CPU seconds on one BLAS thread,
interleaved round by round, medians; so the ratios hold on a shared machine. ``--only core`` or ``--only lm`` runs one
group. The steering peers of the second are those of ``benchmarks/peers.txt``, installed without their dependencies into
an environment of their own; absent ones are left out with a note.
"""
