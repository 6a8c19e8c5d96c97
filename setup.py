"""Builds the compiled kernels where there is a C++ compiler; without one Regard works too, on PyTorch alone."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path("regard/native")
FLAGS = ["-std=c++17", "-O3", "-g0", "-ffp-contract=off", "-Wno-psabi"]


class Kernels(build_ext):
    """A plain shared library: no module of Python, so its name says nothing of a version."""

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', '/')}.native.so"

    def build_extension(self, ext: Extension) -> None:
        reason: Exception | None = None
        for threads in (["-fopenmp"], []):  # some compilers come without OpenMP: then one thread works
            ext.extra_compile_args, ext.extra_link_args = [*FLAGS, *threads], threads
            try:
                return super().build_extension(ext)
            except Exception as error:
                reason = error
        print(f"regard: built without compiled kernels, decoding will be slower ({reason}); install g++ and try again")


setup(
    ext_modules=[
        Extension(
            "regard.native.kernels",
            [str(FOLDER / "kernels.cpp")],
            depends=sorted(str(header) for header in FOLDER.glob("*.h")),
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": Kernels},
)
