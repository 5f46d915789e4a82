"""A card states what was measured, its metadata is valid, and words from a file stay words."""

import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

import repsurgery as rs
from repsurgery.errors import ParameterError
from repsurgery.lm.load.catalogue import EMBEDDED
from repsurgery.steering.model_card import BASE_MODELS, Facts, card_of, certificate_words, in_markdown
from tests.certificates.test_outcome import PLACE, outcome
from tests.strategies import make_concept

HOSTILE = (
    "---\nlicense: mit\n---",
    "rude\n\n# Owned",
    "[click](https://example.com)",
    "https://example.com",
    "www.example.com",
    "a@example.com",
    "<script>alert(1)</script>",
    "![x](y)",
    "a | b |\n|---|",
    "`code` **bold** _it_ ~~no~~ $x$",
    "&lt;img&gt;",
    "\x1b[31mred\x1b[0m\u202e\u2028",
    'quote" #: {}',
    "```",
)


def steering(**changes):
    shift = rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}, origin=rs.Origin(**PLACE))
    return shift.with_outcome(outcome(**changes))


def metadata(card):
    return ModelCard(card).data.to_dict()


def test_the_metadata_is_what_the_hub_reads():
    facts = Facts("me/kinder", "Apache-2.0", "Some texts.", ("me/texts",))
    assert metadata(card_of(steering(), facts)) == {
        "library_name": "repsurgery",
        "base_model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "base_model_relation": "adapter",
        "license": "apache-2.0",
        "datasets": ["me/texts"],
        "pipeline_tag": "text-generation",
        "tags": ["repsurgery", "steering", "activation-steering", "representation-engineering"],
    }


def test_what_is_not_known_is_left_out_of_the_metadata_and_said_in_words():
    card = card_of(rs.SteeringFunction({None: rs.Translation([1.0, 2.0])}), Facts())
    assert set(metadata(card)) == {"library_name", "tags"}
    for sentence in ("Effect and price were not measured", "has no certificate", "states no licence", "| model | unk"):
        assert sentence in card


def test_a_card_states_effect_price_data_and_how_to_load_it():
    card = card_of(steering(), Facts("me/kinder", fitted_on="200 sentences", base_model="me/base"))
    assert in_markdown(outcome().words()) in card
    assert "It costs .098 nats per token" in card
    assert "The author says: 200 sentences." in card
    assert 'rs.SteeringFunction.from_pretrained("me/kinder")' in card
    assert "repsurgery generate --steering hub:me/kinder --model smollm2-135m" in card
    assert '"steering": {"name": "kinder"}' in card
    assert metadata(card)["base_model"] == "me/base"
    assert "may have no effect" not in card
    assert "may have no effect" in card_of(steering(high=0.01), Facts())


def test_the_verdict_of_a_certificate_is_in_words():
    X, z = make_concept(0)
    function = rs.MiMiC(source=0, target=1).fit(X, z).steering_
    words = certificate_words(function)
    assert words.startswith("The certificate of MiMiC says: On the rows of the fit, the rows labelled 0 have the mean ")
    assert f"{sum(z == 0):,} steered, {sum(z == 1):,} of the target" in words
    assert function.digest()[:16] in words
    # a certificate of other maps says nothing of these
    other = replace(function, maps={0: rs.Translation(X[0])})
    assert "belongs to other maps" in certificate_words(other)


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_words_stay_words_in_a_card(word):
    X, z = make_concept(0)
    function = rs.MeanMatching(source=word, target="target").fit(X, [word if c else "target" for c in z]).steering_
    place = rs.Origin(model=word, site=word, data=word, licence=f"{word} and words")
    function = function.with_origin(place).with_outcome(outcome(source=word, target=word, judge=word))
    card = card_of(function, Facts(fitted_on=word))
    plain = function.with_origin(model="m", site="s", data="d", licence="l l")
    plain = replace(plain, outcome=outcome(source="s", target="t", judge="j"))
    assert set(metadata(card)) == {"library_name", "tags", "license", "pipeline_tag"}
    assert metadata(card)["license"] == "other"
    # it adds neither a line nor markup
    assert len(card.splitlines()) == len(card_of(plain, Facts(fitted_on="f")).splitlines())
    body = card.partition("\n---\n")[2]
    text = re.sub(r"```.*?```", "", body, flags=re.DOTALL)
    text = text.replace("`repsurgery`", "")
    assert not re.search(r"(?<!\\)[`<>\[\]$~@]|(?<!\\)://|www\.|\*\*|\x1b|\u202e|\u2028", text)
    code = "".join(re.findall(r"```.*?```", body, flags=re.DOTALL))
    assert 'lm.load("MODEL")' in code or (f'lm.load("{word}")' in code and re.fullmatch(r"[\w.]+", word))
    assert body.count("\n## ") == 7
    assert body.count("```") == 4


def test_counter_check_words_that_are_not_escaped_do_change_the_card():
    card = card_of(steering(), Facts())
    assert "\n# Owned" in card.replace("rude", HOSTILE[1])
    assert "\n# Owned" not in card_of(steering(source=HOSTILE[1]), Facts())


def test_ordinary_words_stay_readable():
    assert in_markdown("non-toxic, 95 % (p = .01); it's fine.") == "non-toxic, 95 % (p = .01); it's fine."


@pytest.mark.parametrize("facts", [{"datasets": ("no slash",)}, {"base_model": "x: y"}, {"datasets": ("a/b\nc: d",)}])
def test_names_for_the_metadata_are_checked(facts):
    with pytest.raises(ParameterError, match="OWNER/NAME"):
        Facts(**facts)


def test_every_embedded_model_has_its_name_on_the_hub():
    assert set(BASE_MODELS) == set(EMBEDDED)
