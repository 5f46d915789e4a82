"""`TextGenerator`: anything that continues prompts. Steering is one implementation; a rival is another, in one file.

A rival is a file in ``rivals``, or a plugin with the entry point ``repsurgery.generators``, that subclasses
`TextGenerator` and registers it in `GENERATORS`. The first word of a configuration line chooses it; the study then
writes, judges and reports it like every other row.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from repsurgery.errors import ParameterError
from repsurgery.registry import Registry

if TYPE_CHECKING:
    from repsurgery.studies.toxicity.data import StudyTexts
    from repsurgery.studies.toxicity.spec import ToxicitySpec

__all__ = [
    "GENERATORS",
    "Continuation",
    "Cost",
    "GeneratorContext",
    "GeneratorLine",
    "TextGenerator",
    "parse_generator_line",
    "sample_seeds",
]

MOST_SAMPLES = 1 << 16
"""The largest number of continuations of one prompt; it keeps the seeds of different study seeds apart."""
SHARE = "share"
"""The option by which a generator that takes long continues only the first prompts; it decides no text."""


class Continuation(NamedTuple):
    """One continuation of a prompt.

    Attributes
    ----------
    text : str
        The continuation without its prompt.
    tokens : tuple of int
        Its tokens, without the end token; empty where the generator has none.
    finished : bool
        Whether the generator ended the text before it reached the largest length.
    """

    text: str
    tokens: tuple[int, ...] = ()
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What generating has cost so far.

    Attributes
    ----------
    seconds : float
        Wall time, measured by the study.
    tokens_read, tokens_written : int
        Tokens of prompts that a model has read, and new tokens that it has drawn.
    extra_passes : int
        Forward passes beyond the one that every new token takes, such as those of a second model.
    """

    seconds: float = 0.0
    tokens_read: float = 0
    tokens_written: float = 0
    extra_passes: float = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True, eq=False)
class GeneratorContext:
    """What a study gives to the generators that it runs.

    Attributes
    ----------
    model, tokenizer
        The study's model, unsteered. No other thread uses them while the generator works.
    spec : ToxicitySpec
        Every option of the study; ``tokens``, ``top_p`` and ``temperature`` describe the sampling.
    texts : StudyTexts
        Labelled texts and prompts, for generators that learn from them.
    work : path
        A folder where a generator may keep what it computes.
    identity : mapping
        Digests of model and tokenizer, and the options of the sampling.
    """

    model: Any
    tokenizer: Any
    spec: "ToxicitySpec"
    texts: "StudyTexts"
    work: Path
    identity: Mapping[str, Any]


class TextGenerator(ABC):
    """Continues prompts, one text for each seed.

    Parameters
    ----------
    name : str
        The configuration line, which also names the row in records and reports.
    context : GeneratorContext
    **options
        The values of ``options`` on that line, or their defaults.

    Attributes
    ----------
    options : mapping of str to default
        The options that a configuration line may set as ``name=value``. A value has the type of its default: a string,
        a whole number or a float. An option named ``share`` is the `prompt_share`.
    needs : str
        What the generator needs beside the model, in a few words for the report.
    cost : Cost
        The total so far. `generate` adds tokens and passes to it; the study adds the seconds.

    Guarantees
    ----------
    A registered generator appears in record and report like a steering (test_a_rival_is_one_registration).
    """

    options: ClassVar[Mapping[str, str | int | float]] = {}
    needs: ClassVar[str] = ""

    def __init__(self, name: str, context: GeneratorContext, **options: Any) -> None:
        self.name, self.context, self.chosen = name, context, options
        self.cost = Cost()

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON values that decide the outputs, beside prompts and seeds; texts are stored under their digest.

        Extend it where more than the study's model, the sampling and the options decides, such as a second model.
        """
        options = {name: value for name, value in {**self.options, **self.chosen}.items() if name != SHARE}
        generator = {"generator": type(self).__name__, "options": options}
        return {**self.context.identity, **generator, **GENERATORS.source(self.name.split()[0])}

    @property
    def prompt_share(self) -> float:
        """The share of the study's prompts that are continued, above 0 and at most 1: the first of them."""
        return float(self.chosen.get(SHARE, 1.0))

    def own_prompts(self, prompts: Sequence[str]) -> Sequence[str]:
        """Return the prompts that this generator continues: the first ``prompt_share`` of them, rounded up."""
        # a product such as .07 x 100 exceeds the whole number by its rounding
        return prompts[: math.ceil(round(self.prompt_share * len(prompts), 9))]

    @property
    def training_seconds(self) -> float | None:
        """The CPU seconds that the trained parts took, whenever that was; 0 without such parts, None if unknown."""
        return 0.0

    def part_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what is known of each trained part: its ``training_seconds`` and its ``bytes``."""
        return {}

    def prepare(self, *, progress: bool) -> None:  # noqa: B027 - most generators have nothing to prepare
        """Train or read the parts that `generate` needs; the study calls it before it writes or measures."""

    @contextmanager
    def likelihood_model(self) -> Iterator[Any | None]:
        """Yield a model whose forward pass gives the next-token distribution that is sampled; None if there is none.

        It may be the study's own model, changed inside the block.
        """
        yield None

    @abstractmethod
    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[list[Continuation]]:
        """Return, for each prompt, one continuation per seed, in the order of ``seeds``.

        A continuation must depend on its prompt, its seed and the identity alone, so that an interrupted study can
        continue with the prompts that are missing. Rivals run one after another, so that one may seed the process.
        """


GENERATORS: Registry[type[TextGenerator]] = Registry(
    "generator",
    home=f"{__package__}.rivals",
    group="repsurgery.generators",
    needs="a subclass of TextGenerator",
    accepts=lambda value: isinstance(value, type) and issubclass(value, TextGenerator),
)
"""The rivals of steering by the first word of their configuration lines."""


@dataclass(frozen=True, slots=True)
class GeneratorLine:
    """A configuration line that chooses a registered generator.

    Attributes
    ----------
    generator : str
        A key of `GENERATORS`.
    name : str
        The line as it was written, with single spaces.
    options : mapping
        Every option, defaults included.
    """

    generator: str
    name: str
    options: Mapping[str, str | int | float] = field(default_factory=dict)

    def make(self, context: GeneratorContext) -> TextGenerator:
        """Return the generator that this line describes."""
        return GENERATORS[self.generator](self.name, context, **self.options)


def parse_generator_line(words: str) -> GeneratorLine:
    """Read ``"generator name=value ..."``, where the first word is a key of `GENERATORS`."""
    generator, *pairs = words.split()
    defaults = GENERATORS[generator].options
    given: dict[str, str | int | float] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or name not in defaults or name in given:
            allowed = ", ".join(f"{option}=…" for option in defaults) or "no options"
            raise ParameterError(
                f"{words!r} contains {pair!r}; after {generator!r} it may contain {allowed}, once each."
            )
        try:
            given[name] = type(defaults[name])(text)
        except ValueError as error:
            kind = type(defaults[name]).__name__
            raise ParameterError(f"{words!r} has {name} {text!r}; it must be of type {kind}.") from error
    if not 0 < float(given.get(SHARE, 1)) <= 1:
        raise ParameterError(f"{words!r} has share {given[SHARE]}; it must be above 0 and at most 1.")
    return GeneratorLine(generator, " ".join(words.split()), {**defaults, **given})


def sample_seeds(seed: int, samples: int) -> list[int]:
    """Return the seeds of ``samples`` continuations under the study's ``seed``; fewer are the first of more.

    Sample ``j`` of seed ``s`` has the number ``s * 65536 + j``, so that studies with different seeds share none. From
    study seed 65536 on, a number needs more than 32 bits.
    """
    if samples > MOST_SAMPLES:
        raise ParameterError(f"samples is {samples}; a study draws at most {MOST_SAMPLES} continuations of a prompt.")
    return [seed * MOST_SAMPLES + sample for sample in range(samples)]
