"""What a model writes itself: scored, with credit for each step, as class moments to fit maps on."""
