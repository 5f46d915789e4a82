"""What ``torchrun`` runs: each rank counts its shards, all of them get the sum."""

import sys
from functools import reduce
from operator import add
from pathlib import Path

from torch import distributed

from repsurgery import ClassMoments
from repsurgery.scale import all_reduce_moments, count_shard, find_shards
from tests.scale.written import in_groups


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    shards = find_shards([f"{folder}/x*.npy"], labels=[f"{folder}/z*.npy"])
    mine = reduce(add, [count_shard(shard).moments for shard in shards[rank::ranks]])
    all_reduce_moments(mine).save(folder / f"rank{rank}.safetensors")
    only_here = mine if rank == 0 else ClassMoments({})
    all_reduce_moments(only_here).save(folder / f"alone{rank}.safetensors")
    all_reduce_moments(in_groups(rank)).save(folder / f"groups{rank}.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
