"""A file is read as Pulumi's engine reads it."""

import json

import pytest

from infra.config.stackfile import UnreadableError, read

# What `pulumi config --json` (3.272.0) printed for each scalar.
SCALARS = {
    "on": "on",
    "yes": "yes",
    "Yes": "Yes",
    "True": True,
    "TRUE": True,
    "300.0": 300,
    "3e-3": 0.003,
    "1e-3": 0.001,
    "007": 7,
    "08": 8,
    "09.5": 9.5,
    "1_000": 1000,
    "1_0.5_0": 10.5,
    "0x10": 16,
    "-0x10": -16,
    "0o17": 15,
    "-0o7": -7,
    "0b11": 3,
    "12:30": "12:30",
    "1:30:00": "1:30:00",
    "~": None,
    "null": None,
    "1e300": 1e300,
    "1e999": "1e999",
    "12345678901234567890123": 1.2345678901234568e22,
    "9007199254740993": 9007199254740993,
    "+5": 5,
    "1.": 1,
    ".5": 0.5,
    "+.5": 0.5,
    '"5"': "5",
    "!!str 5": "5",
    "-0": 0,
    "1e20": 100000000000000000000,
    "4x4": "4x4",
    "=": "=",
}

# Each line holds the one before nine times: 9^9 values if written out.
BOMB = "config:\n  raytpu:a:\n    - &a0 [1]\n" + "".join(
    f"    - &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9)
)


def stack_file(tmp_path, text):
    path = tmp_path / "Pulumi.some.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_scalar_is_read_as_the_engine_reads_it(tmp_path, scalar):
    values = read(stack_file(tmp_path, f"config:\n  raytpu:slices: [{scalar}]\n"))
    (value,) = json.loads(values["raytpu:slices"])
    assert (value, type(value)) == (SCALARS[scalar], type(SCALARS[scalar]))


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        ("on", "on"),
        ("5", "5"),
        ("1.50", "1.5"),
        ("true", "true"),
        ("0x10", "16"),
        ('""', ""),
        ("", ""),
        ("300.0", "300"),
        ("[]", "[]"),
    ],
)
def test_a_value_of_the_outermost_level_is_text(tmp_path, scalar, text):
    assert read(stack_file(tmp_path, f"config:\n  raytpu:any: {scalar}\n")) == {"raytpu:any": text}


def test_a_key_without_namespace_is_the_projects_own(tmp_path):
    path = stack_file(tmp_path, "config:\n  slices: [1]\n  gcp:project: p\n")
    assert read(path) == {"raytpu:slices": "[1]", "gcp:project": "p"}


def test_anchors_and_merges_are_written_out_and_keys_are_text(tmp_path):
    path = stack_file(
        tmp_path,
        "config:\n  raytpu:any:\n    - &a {x: 1, z: 0}\n    - <<: *a\n      z: 2\n"
        "    - &c {<<: *a, z: 3}\n    - {<<: *c, y: 4}\n    - {1: 2, true: 3}\n"
        "    - {<<: [*a, *c], y: 5}\n",
    )
    assert json.loads(read(path)["raytpu:any"]) == [
        {"x": 1, "z": 0},
        {"x": 1, "z": 2},
        {"x": 1, "z": 3},
        {"x": 1, "z": 3, "y": 4},
        {"1": 2, "true": 3},
        {"x": 1, "z": 0, "y": 5},
    ]


def test_an_encrypted_value_stays_as_it_is(tmp_path):
    path = stack_file(tmp_path, "config:\n  raytpu:any: [{api_key: {secure: v1:x}}]\n")
    assert json.loads(read(path)["raytpu:any"]) == [{"api_key": {"secure": "v1:x"}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config:\n  raytpu:a: 1\n  raytpu:a: 2\n", ":3: key 'raytpu:a' is given twice"),
        ("config:\n  a: 1\n  raytpu:a: 2\n", ": a is also raytpu:a; remove one"),
        ("config:\n  raytpu:a: {x: 1, x: 1}\n", ":2: key 'x' is given twice"),
        ("config:\n\traytpu:a: 1\n", ":2: found character '\\t' that cannot start any token"),
        ("config:\n  raytpu:a: [1\n", "; correct the YAML there"),
        ("config: {raytpu:a: *b}\n", "undefined alias"),
        ("config: {raytpu:a: !!python/object:os.system x}\n", "could not determine a constructor"),
        ("config: {raytpu:a: !!int x}\n", "'x' is no number"),
        ("config: {raytpu:a: [!!binary aGk=]}\n", "remove its YAML tag"),
        ("config: {raytpu:a: &b [*b]}\n", "contains itself"),
        ("config: {raytpu:a: " + "[" * 5000 + "\n", "nested too deep"),
        ("config:\n  - a\n", "no mapping under `config:`"),
        ("config: {raytpu:a: {<<: 5}}\n", "`<<` names no mapping"),
        ("config: {raytpu:a: {[1]: 5}}\n", "a key is no text"),
        ("config: {raytpu:a: &a {<<: *a}}\n", "nested too deep"),
        (BOMB, "its anchors make too many values"),
        ("config: 5\n", "no mapping under `config:`"),
        ("encryptionsalt: x\n", "no mapping under `config:`"),
        ("- a\n", "begin with `config:`"),
        ("", "begin with `config:`"),
        ("a: 1\n---\nb: 2\n", "another document"),
        ("config: \x00\n", "character 8 is not allowed"),
    ],
)
def test_what_is_no_stack_file_is_refused_in_one_line(tmp_path, text, said):
    with pytest.raises(UnreadableError) as error:
        read(stack_file(tmp_path, text))
    assert said in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert "\n" not in str(error.value)
    assert "; " in str(error.value)


def test_bytes_that_are_no_utf_8_are_refused_in_one_line(tmp_path):
    path = tmp_path / "Pulumi.some.yaml"
    path.write_bytes(b"config:\n  raytpu:a: \xff\n")
    with pytest.raises(UnreadableError, match="byte 20 is not UTF-8"):
        read(path)


def test_a_file_that_is_not_there_or_a_folder_is_refused_in_one_line(tmp_path):
    with pytest.raises(UnreadableError, match="No such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(UnreadableError, match="Is a directory"):
        read(tmp_path)
