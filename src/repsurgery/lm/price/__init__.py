"""The price of a steering in nats: Fisher matrices at sites of a model, and gradients of credits."""
