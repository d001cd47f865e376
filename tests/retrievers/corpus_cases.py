"""One corpus in every format a corpus may have, and how to break it."""

import csv
import gzip
import io
import json
import tarfile

import zstandard

from retrievers import Passage

PASSAGES = [
    Passage("10", "Hamlet", "A play."),
    Passage("2", "", "∅ café 北京 \u2028 end"),
    Passage("a b", 'Say "hi"', '"so" said he'),
    Passage("9", "Empty", ""),
    Passage("\u00e9", "T", '"quoted as a whole"'),
]


def jsonl(passages=PASSAGES):
    """Rows of BEIR; odd ones with ids as integers where they are such."""
    rows = [
        {"_id": int(p.id) if p.id.isdecimal() else p.id, "title": p.title, "text": p.text}
        for p in passages
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def contents(passages=PASSAGES):
    """Rows of wiki-18."""
    rows = [
        {"id": p.id, "contents": f'"{p.title}"\n{p.text}' if p.title else p.text} for p in passages
    ]
    return "".join(json.dumps(row, ensure_ascii=False) + "\r\n\n" for row in rows).encode()


def headed_tsv(passages=PASSAGES):
    """As csv writers write it, with the columns of DPR's psgs_w100.tsv."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["id", "text", "title"])
    writer.writerows((p.id, p.text, p.title) for p in passages)
    return text.getvalue().encode()


def bare_tsv(passages=PASSAGES):
    """No header and no quoting, as in MS MARCO's collection.tsv."""
    return "".join(f"{p.id}\t{p.text}\t{p.title}\r\n" for p in passages).encode()


def parquet(path, passages=PASSAGES):
    import pyarrow
    from pyarrow.parquet import write_table

    columns = {
        "_id": [p.id for p in passages],
        "title": [p.title or None for p in passages],
        "text": [p.text for p in passages],
        "url": ["unread"] * len(passages),
    }
    write_table(pyarrow.table(columns), path, row_group_size=2)


def many_frames(content):
    """zstd in several frames and, for gzip, several members: both formats may be concatenated."""
    half = len(content) // 2
    return [content[:half], content[half:]]


def gz(content):
    return b"".join(map(gzip.compress, many_frames(content))) + bytes(512)  # padded, as on tapes


def zst(content):
    compressor = zstandard.ZstdCompressor()
    return b"".join(map(compressor.compress, many_frames(content)))


WIKI_DUMP = "data00/jiajie_jin/flashrag_indexes/wiki_dpr_100w/wiki_dump.jsonl"


def tar(members, form=tarfile.PAX_FORMAT):
    """An archive of (name, content), with the folders above them; no content makes a link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        folder = tarfile.TarInfo("data00")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            member.size = len(content or b"")
            archive.addfile(member, io.BytesIO(content or b""))
    return made.getvalue()


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
