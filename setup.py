"""Builds the compiled part of the placer, where there is a compiler; all else is in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension
from setuptools import setup

setup(
    ext_modules=[
        Pybind11Extension(
            "spanfit.placer._kernel",
            ["spanfit/placer/kernel/module.cpp"],
            depends=[str(header) for header in Path("spanfit/placer/kernel").glob("*.hpp")],
            cxx_std=17,
            optional=True,  # Without it the placer has one way less of building grids.
            # No fused multiply-add, which would round otherwise where a machine has it.
            extra_compile_args=["-O3", "-ffp-contract=off"],
        )
    ]
)
