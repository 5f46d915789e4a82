"""Neutral sentences, on which steering should change nothing: plain facts in plain words, written for this project."""

__all__ = ["NEUTRAL"]

NEUTRAL = (
    "The river rises in the northern hills and flows through three valleys before it reaches the sea.",
    "Copper conducts heat and electricity well, which is why it is used for pipes and wires.",
    "The library opens at nine in the morning and closes at six, except on Sundays.",
    "Most of the bridges in the old town were built of stone in the eighteenth century.",
    "A triangle with sides of three, four and five units has one right angle.",
    "Wheat is sown in autumn and harvested in the following summer in much of the region.",
    "The train stops at every station between the harbour and the airport.",
    "Water boils at a lower temperature on a mountain, because the air pressure is lower there.",
)
