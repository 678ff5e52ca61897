"""Imports PyTorch, and does what one.py does."""

import torch

import one
