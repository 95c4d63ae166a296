"""Build the C++ library with CMake and put it into the package.

Everything else about the package is in ``pyproject.toml``.

Environment variables
---------------------
FUSE_EPILOGUE_BUILD_DIR
    Folder for CMake's files, kept and brought up to date by the next build. Without it every build
    starts afresh: with build isolation the tools of the last build are gone.
CMAKE_ARGS
    Further arguments for CMake, for example ``-DCMAKE_BUILD_TYPE=Debug``.
CMAKE_BUILD_PARALLEL_LEVEL
    How many compilers run at once (CMake's own variable).
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class BuildLibrary(build_ext):
    """Let CMake build the one library there is, instead of compiling an extension module."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path without a suffix for the Python version, which the library has not."""
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        """Configure, build and install the library to where setuptools collects the package."""
        # By their modules, not from PATH: those are the ones of the build requirements.
        import cmake
        import ninja

        cmake_program = str(Path(cmake.CMAKE_BIN_DIR, "cmake"))
        kept = os.environ.get("FUSE_EPILOGUE_BUILD_DIR")
        build_dir = Path(kept or self.build_temp).resolve()
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent.parent
        configure = [
            *(cmake_program, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR, 'ninja')}",
            f"-DPython_EXECUTABLE={sys.executable}",
            *([] if kept else ["--fresh"]),
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        install = [cmake_program, "--install", str(build_dir), "--prefix", str(package)]
        subprocess.check_call(configure)
        subprocess.check_call([cmake_program, "--build", str(build_dir)])
        subprocess.check_call(install)


class PlatformWheel(bdist_wheel):
    """Tag the wheel for any Python 3: the library does not use Python's C interface."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag with the platform as the only restriction."""
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[Extension("fuse_epilogue.lib.libfuse_epilogue", sources=[])],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
