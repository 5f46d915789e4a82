"""Shards of structured rows, reduced in one process or merged from files, have the moments of all rows."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from repsurgery import ClassMoments
from repsurgery.errors import DuplicateWarning, LedgerError, NonFiniteWarning, ShapeError
from repsurgery.scale import LocalEngine, Schema, Shard, count_shard, merge_files, reduce_shards
from tests.oracles import two_pass
from tests.strategies import EPS, share, structured, structured_rows
