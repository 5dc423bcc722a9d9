"""policy.zip: what is not as it was written is refused, by whoever reads it."""

import hashlib
import io
import json
import zipfile

import pytest

from jmarl.commands import export
from jmarl.errors import ConfigError
from jmarl.evaluation.exported_policy import PROGRAMS, packed, unpacked

ABOUT = {"env": "mpe/simple", "algorithm": "ippo"}
WHOLE = packed(ABOUT, {"greedy": b"g" * 500, "sampled": b"s" * 500})


def members(content=WHOLE):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rezipped(**changes):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in (members() | changes).items():
            if member is not None:
                archive.writestr(name, member)
    return content.getvalue()


def test_sums_are_those_of_sha256sum(tmp_path):
    found = members()
    for line in found["SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(found[name]).hexdigest() == digest
    path = tmp_path / "policy.zip"
    path.write_bytes(WHOLE)
    read = unpacked(path)
    assert json.loads(read.pop("about.json")) == ABOUT
    assert read == {"greedy": b"g" * 500, "sampled": b"s" * 500}
    assert sorted(read) == sorted(PROGRAMS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged: File is not a zip file"),
        (WHOLE[: len(WHOLE) // 2], "is damaged: File is not a zip file"),
        (WHOLE.replace(b"greedy", b"greedX", 1), "is damaged: File name in directory"),
        (rezipped(greedy=b"g" * 499), "its content is not what SHA256SUMS says"),
        (rezipped(greedy=b"s" * 500, sampled=b"g" * 500), "is not what SHA256SUMS says"),
        (rezipped(**{"about.json": b"{}"}), "is not what SHA256SUMS says"),
        (rezipped(SHA256SUMS=b""), "is not what SHA256SUMS says"),
        (rezipped(SHA256SUMS=None), "has no SHA256SUMS; export its run once more"),
        (rezipped(sampled=None), "it does not consist of about.json, greedy, sampled"),
        (rezipped(more=b"x"), "it does not consist of about.json, greedy, sampled"),
    ],
)
def test_what_was_altered_is_refused_in_one_sentence(content, words, tmp_path, called):
    path = tmp_path / "policy.zip"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        unpacked(path)
    code, told = called(export, path)
    assert code == 2
    assert words in told
    assert told.count("\n") == 1


def test_a_flipped_bit_is_noticed_wherever_it_changes_content(tmp_path):
    path = tmp_path / "policy.zip"
    for at in range(0, len(WHOLE), 7):
        path.write_bytes(WHOLE[:at] + bytes([WHOLE[at] ^ 4]) + WHOLE[at + 1 :])
        try:
            read = unpacked(path)
        except ConfigError:
            continue
        assert read == {n: m for n, m in members().items() if n != "SHA256SUMS"}  # of its date


def test_a_whole_file_is_said_to_be_whole(tmp_path, called):
    path = tmp_path / "policy.zip"
    path.write_bytes(WHOLE)
    assert called(export, path) == (0, f"{path} is whole: ippo for mpe/simple\n")
    assert called(export, tmp_path / "none.zip")[0] == 2
