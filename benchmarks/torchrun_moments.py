"""What ``torchrun`` runs in the large run: each rank counts its shards, one all-reduce, rank 0 writes."""

import sys
from functools import reduce
from operator import add
from pathlib import Path

from torch import distributed

from benchmarks import shards
from repsurgery.scale import all_reduce_moments, count_shard


def main(data: Path, out: Path) -> None:
    """Count, sum, write."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    mine = reduce(add, [count_shard(shard).moments for shard in shards.found(data)[rank::ranks]])
    whole = all_reduce_moments(mine)
    if rank == 0:
        whole.save(out)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
