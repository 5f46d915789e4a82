"""A rival of steering in one file: lower the logits of a list of words."""

from typing import ClassVar

from transformers import LogitsProcessor, LogitsProcessorList, set_seed

from repsurgery.studies.toxicity.generators import GENERATORS, Continuation, Cost, TextGenerator


class Lowered(LogitsProcessor):
    def __init__(self, tokens, penalty):
        self.tokens, self.penalty = tokens, penalty

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, self.tokens] -= self.penalty
        return scores


@GENERATORS.register("word-penalty")
class WordPenalty(TextGenerator):
    """Sample by transformers' own ``generate`` with the logits of ``words`` lowered by ``penalty``."""

    options: ClassVar = {"penalty": 5.0, "words": "w1"}

    def generate(self, prompts, seeds):
        return [[self._continued(prompt, seed) for seed in seeds] for prompt in prompts]

    def _continued(self, prompt, seed):
        model, tokenizer, spec = self.context.model, self.context.tokenizer, self.context.spec
        words = tokenizer.convert_tokens_to_ids(self.chosen["words"].split(","))
        inputs = tokenizer(prompt, return_tensors="pt")
        set_seed(seed)
        ids = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            top_p=spec.top_p,
            temperature=spec.temperature,
            max_new_tokens=spec.tokens,
            logits_processor=LogitsProcessorList([Lowered(words, self.chosen["penalty"])]),
        )
        length = inputs["input_ids"].shape[1]
        new = [t for t in ids[0, length:].tolist() if t not in tokenizer.all_special_ids]
        self.cost += Cost(tokens_read=length, tokens_written=len(new))
        return Continuation(" " + tokenizer.decode(new), tuple(new), len(new) < spec.tokens)
