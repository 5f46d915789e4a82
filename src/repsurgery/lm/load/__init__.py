"""Load models from the hub, a folder or a wheel, and identify them by content."""
