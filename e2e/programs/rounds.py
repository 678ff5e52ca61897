"""Shared by the programs of the benchmark: rounds on command."""

import sys


def play(turn, pairs, rounds):
    """Calls turn, which allocates and frees that many times and gives the ns that it took.

    Waits for a line on standard input before each round, if there are several; a
    number on it takes the place of pairs.
    """
    print("ready", flush=True)
    if not rounds:
        print(turn(pairs), flush=True)
        return
    for _ in range(rounds):
        line = sys.stdin.readline()
        if not line:
            break
        print(turn(int(line.strip() or pairs)), flush=True)
