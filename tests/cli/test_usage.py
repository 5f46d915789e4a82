"""A wrong command line is explained in the words of the command line."""

import pytest

from repsurgery.cli.usage import in_flags, suggest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "--layer", "12"), "There is no option --layer. Did you mean --site layers.12?"),
        (("generate", "f", "--layer=3"), "Did you mean --site layers.3?"),
        (("generate", "f", "--layers", "all"), "Did you mean --site layers.N?"),
        (("fit", "-o", "f"), "There is no option -o. Did you mean --out?"),
        (("fit", "--text-col", "t"), "Did you mean --text-column?"),
        (("fit", "--sorce", "a"), "Did you mean --source?"),
        (("fit", "--scale", "2"), "Did you mean --strength?"),
        (("export", "f", "--kl-budget", "1"), "There is no option --kl-budget."),
        (("fit", "--xyzzy"), "There is no option --xyzzy."),
    ],
)
def test_an_unknown_flag_suggests_the_nearest_one(run, words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert ("Did you mean" in message) == ("Did you mean" in result.stderr)


@pytest.mark.parametrize("command", ["fit", "generate", "export", "tune", "moments", "serve"])
def test_no_suggestion_is_a_flag_that_the_command_does_not_have(run, command):
    shown = run(command, "--help").stdout
    for unknown in ("--layer", "--output", "--scale", "--budget", "--gpu", "--max-length", "--label", "--prompts"):
        answer = run(command, unknown, "1").stderr
        for flag in [word.strip("?") for word in answer.split("Did you mean")[-1].split() if "Did you mean" in answer]:
            if flag.startswith("--"):
                assert flag in shown, (command, unknown, flag)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--strength", "1", "--strength", "2"), "--strength was given twice: 1 and 2. Give it once."),
        (("--strength=1", "--seed", "3", "--strength", "1"), "--strength was given twice: 1 and 1."),
        (("--out", "a", "--out", "b", "--out", "c"), "--out was given 3 times: a and b and c."),
    ],
)
def test_one_value_is_not_given_twice(run, words, message):
    result = run("fit", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_options_for_several_values_and_switches_may_be_repeated(run, tmp_path):
    out = tmp_path / "f"
    result = run("fit", "--source", "a", "--source", "b", "--quiet", "--quiet", "--out", out)
    assert "Pass either a table" in result.stderr


def test_a_decimal_comma_is_named(run):
    result = run("fit", "--strength", "0,5", "--out", "f")
    assert result.exit_code == 2
    assert "'0,5' is not a number. Write a decimal point, as in 0.5." in result.stderr
    assert "'abc'" in run("fit", "--strength", "abc", "--out", "f").stderr


FLAGS = {"gate": "--gate", "batch_rows": "--batch-rows", "text": "--text-column", "concept": "--set concept="}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("batch_rows is 0; it must be 1.", "--batch-rows is 0; it must be 1."),
        ("Choose gate='always', or one round.", "Choose --gate always, or one round."),
        ("Name yours with text=, concept=.", "Name yours with --text-column, --set concept=."),
        ("LEACE takes no gate=; it takes precision=, text=.", "LEACE takes no --gate; it takes --text-column."),
        ("Call fit(X, gate='lda') instead.", "Call fit(X, gate='lda') instead."),
        ("such as 'mimic gate=always' here", "such as 'mimic gate=always' here"),
        ("the user's text=a and the model's", "the user's --text-column a and the model's"),
        ("unknown=3 stays", "unknown=3 stays"),
        ("batch_rows must not be text_x or batch_rows.", "--batch-rows must not be text_x or --batch-rows."),
        ("in my/batch_rows and batch_rows.csv", "in my/batch_rows and batch_rows.csv"),
    ],
)
def test_parameters_become_flags_and_quotations_stay(message, said):
    assert in_flags(message, FLAGS) == said


def test_what_is_far_from_every_flag_suggests_nothing():
    assert suggest("--gate-keeper-of-x", ["--site", "--out"], []) == "There is no option --gate-keeper-of-x."


def test_errors_of_the_library_name_flags(run, table, model_folder, tmp_path):
    place = ("--model", model_folder, "--out", tmp_path / "f")
    for words, message in (
        (("fit", table, "--target", "b"), "Name yours with --text-column and --label-column."),
        (
            ("fit", table, "--target", "b", "--chat", "--prompt-column", "p"),
            "Name yours with --text-column, --label-column and --prompt-column.",
        ),
        (("fit", table, "--device", "meta"), "--device meta holds no numbers"),
    ):
        result = run(*words, *place)
        assert result.exit_code in (1, 2)
        assert message in " ".join(result.stderr.replace("│", " ").split())
