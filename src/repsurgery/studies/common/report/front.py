"""The Pareto front of points in the plane, where less is better on both axes."""

from collections.abc import Sequence

__all__ = ["undominated"]


def undominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of the points that no other one dominates, by increasing first coordinate.

    A point dominates another if neither coordinate is larger and at least one is smaller. Of equal points, all are
    returned, in their order.

    Guarantees
    ----------
    No point of the front is dominated, and every other point is
    (test_the_front_consists_of_the_candidates_that_no_other_one_dominates).

    Examples
    --------
    >>> undominated([(1.0, 3.0), (2.0, 3.5), (2.0, 1.0), (0.5, 4.0)])
    [3, 0, 2]
    """
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: points[i]):
        # in this order only the last of the front can dominate this point or be equal to it
        if not front or points[i][1] < points[front[-1]][1] or points[i] == points[front[-1]]:
            front.append(i)
    return front
