import pytest
import torch

from kvbind.rope import Rope

FREQUENCIES = 10000.0 ** -torch.linspace(0, 0.9, 6)


def twin(keys: torch.Tensor, shift: int, pairing: str) -> torch.Tensor:
    """The same rotation as complex multiplication, in float64."""
    half = len(FREQUENCIES)
    turned, rest = keys[..., : 2 * half].double(), keys[..., 2 * half :].double()
    pairs = turned.unflatten(-1, (2, half)).movedim(-2, -1) if pairing == "half" else turned.unflatten(-1, (half, 2))
    complex_pairs = torch.complex(pairs[..., 0], pairs[..., 1]) * torch.polar(
        torch.ones(half, dtype=torch.float64), shift * FREQUENCIES.double()
    )
    back = torch.stack((complex_pairs.real, complex_pairs.imag), dim=-1)
    flat = back.movedim(-1, -2).flatten(-2) if pairing == "half" else back.flatten(-2)
    return torch.cat((flat, rest), dim=-1)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [-5, 1, 100_000])
def test_rotation_is_complex_multiplication(pairing: str, dtype: torch.dtype, shift: int) -> None:
    keys = torch.randn(3, 2, 7, 16).to(dtype)  # 12 of 16 channels rotate
    expected = twin(keys, shift, pairing).to(dtype)
    torch.testing.assert_close(Rope(FREQUENCIES, pairing).rotate(keys, shift), expected)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_two_ways_of_computing_agree_and_out_is_written(pairing: str) -> None:
    rope, keys = Rope(FREQUENCIES, pairing), torch.randn(2, 5, 12)
    buffer = torch.zeros(2, 9, 12)
    rope.rotate(keys, 11, out=buffer[:, 2:7])
    torch.testing.assert_close(buffer[:, 2:7], rope._rotated(keys, 11))
    assert buffer[:, :2].abs().sum() == buffer[:, 7:].abs().sum() == 0


def test_no_shift_is_a_bit_exact_copy() -> None:
    keys = torch.randn(2, 5, 16).bfloat16()
    moved = Rope(FREQUENCIES, "half").rotate(keys, 0)
    assert torch.equal(moved, keys)
    assert moved.data_ptr() != keys.data_ptr()


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_gradients_pass_through_a_rotation(pairing: str) -> None:
    keys = torch.randn(2, 3, 16, requires_grad=True)
    (Rope(FREQUENCIES, pairing).rotate(keys, 9) * torch.randn(2, 3, 16)).sum().backward()
    assert keys.grad is not None
    assert keys.grad.abs().min() > 0
