"""Replays live traffic over simulated instances under the admission that production runs, and under those it is compared with."""
