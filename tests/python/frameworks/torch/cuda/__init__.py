# SPDX-License-Identifier: MIT
from . import memory
from .memory import *

initialized = False


def is_initialized():
    return initialized


def current_device():
    return 0
