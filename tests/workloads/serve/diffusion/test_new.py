"""A folder of random weights, as the command writes it."""

import pytest
from safetensors.numpy import load_file

from workloads.serve.diffusion import new
from workloads.serve.diffusion.config import read_config
from workloads.serve.text import Text


def test_the_command_writes_a_model_that_says_it_is_not_trained(tmp_path, capsys):
    new.main([str(tmp_path / "a"), "--image-size=8", "--layers=1", "--hidden-size=16"])
    config = read_config(tmp_path / "a")
    assert (config.trained, config.image_size, config.patch_size) == (False, 8, 4)
    assert "a model of random weights, whose pictures are noise" in capsys.readouterr().out
    assert len(load_file(tmp_path / "a" / "model.safetensors")) > 20


def test_every_text_has_a_token_for_each_of_its_bytes(noise_folder):
    text = Text(noise_folder)
    assert [len(text.encode(one)) for one in ("a cat", "ü", "你", "\n")] == [5, 2, 3, 1]
    assert text.tokenizer.decode(text.encode("naïve 你 🙂")) == "naïve 你 🙂"


def test_sizes_that_do_not_go_together_are_told_in_a_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        new.main([str(tmp_path / "a"), "--patch-size=5"])
    assert "patch_size 5 does not divide 32 pixels" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
