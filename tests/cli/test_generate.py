from repsurgery import lm


def test_base_and_steered_stand_side_by_side(run, fitted, model_folder):
    result = run("generate", fitted, "--model", model_folder, "--prompt", "w1 w2", "--seed", 3, "--max-new-tokens", 4)
    assert result.exit_code == 0, result.output
    import repsurgery as rs

    for steering in (None, rs.load(fitted)):
        model, tokenizer = lm.load(model_folder)
        (text,) = lm.generate(
            model, tokenizer, ["w1 w2"], steering=steering, n=1, seed=3, max_new_tokens=4, progress=False
        )
        assert text.text.strip() in result.stdout
    assert "base" in result.stdout
    assert fitted.stem in result.stdout


def test_strength_zero_writes_what_the_base_writes(run, fitted, model_folder, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3\n\nw4 w5\n")
    common = ("--model", model_folder, "--prompts-file", prompts, "--positions", "generated", "-n", 2)
    result = run("generate", fitted, fitted, *common, "--strength", 0)
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert len([row for row in rows if row[0].strip()]) == 4
    for _, base, first, second in rows:
        assert base.strip() == first.strip() == second.strip()


def test_without_a_prompt_it_is_a_usage_error(run, fitted, model_folder):
    result = run("generate", fitted, "--model", model_folder)
    assert result.exit_code == 2
    assert "--prompts-file" in result.stderr


def test_sites_are_one_for_all_files_or_one_for_each(run, fitted, model_folder):
    wrong = run("generate", fitted, "--prompt", "w1", "--model", model_folder, "--site", "final", "--site", "layers.0")
    assert wrong.exit_code == 1
    assert "one for each" in wrong.stderr
    right = ("--site", "final", "--site", "layers.0")
    assert run("generate", fitted, fitted, "--prompt", "w1", "--model", model_folder, *right).exit_code == 0


def test_a_file_that_is_not_there_is_one_line(run, model_folder, tmp_path):
    result = run("generate", tmp_path / "none", "--prompt", "w1", "--model", model_folder)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no file")


def test_a_budget_needs_a_stored_fisher_matrix(run, fitted, table, model_folder, tmp_path):
    common = ("--model", model_folder, "--prompt", "w1 w2", "--kl-budget", 0.01)
    without = run("generate", fitted, *common)
    assert without.exit_code == 1
    assert "--store-fisher" in without.stderr
    out = tmp_path / "priced.safetensors"
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", "mean", "--source", "a", "--target", "b", "--gate", "always", "--store-fisher", "--out", out),
    )
    assert result.exit_code == 0, result.output
    priced = run("generate", out, *common)
    assert priced.exit_code == 0, priced.output
    import repsurgery as rs

    function = rs.load(out)
    assert f"strength {function.price.strength(function, 0.01):g}" in priced.stdout
    assert "predicted KL at strength 1" in run("inspect", out).stdout
    both = run("generate", out, *common, "--strength", 0.5)
    assert both.exit_code == 1 and "either --strength or --kl-budget" in both.stderr
