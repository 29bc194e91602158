import pytest
import torch

from spanfit.bench.device import choose_device, handle_errors, parse_reading, read_device, shared_devices


def test_gloo_runs_on_the_cpu_and_nccl_on_the_gpu_of_its_local_rank() -> None:
    assert choose_device("gloo", 5, 0) == torch.device("cpu")
    assert choose_device("nccl", 3, 4) == torch.device("cuda", 3)


@pytest.mark.parametrize("ndevices", [0, 4])
def test_a_local_rank_without_a_gpu_is_one_clear_error(ndevices: int) -> None:
    with pytest.raises(RuntimeError) as error:
        choose_device("nccl", 4, ndevices)
    assert f"local rank 4 has no GPU: this host shows {ndevices}, expected at least 5" in str(error.value)
    assert "launch.ranks_per_node" in str(error.value)


def test_error_handling_is_set_only_where_the_person_has_not() -> None:
    environment = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    handle_errors(environment)
    assert environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert environment["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert int(environment["TORCH_NCCL_TRACE_BUFFER_SIZE"]) > 0


def test_two_ranks_on_one_gpu_of_a_host_are_named() -> None:
    assert shared_devices(["a", "a", "b"], ["0", "1", "0"]) == ""
    assert shared_devices(["a", "a", "a"], ["", "", ""]) == ""
    assert shared_devices(["a", "b", "a", "b"], ["0", "0", "0", "1"]) == (
        "ranks 0, 2 use one GPU of a (0), expected one each; check LOCAL_RANK and CUDA_VISIBLE_DEVICES"
    )


def test_a_reading_is_numbers_and_the_mask_of_throttle_reasons() -> None:
    assert parse_reading("1980, 2619, 34, 120.55, 0x0000000000000004\n") == {
        "clock_mhz": 1980.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 34.0,
        "power_w": 120.55,
        "throttle_reasons": "0x0000000000000004",
    }


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    assert parse_reading("1980, [N/A], 34, [Not Supported], [Unknown Error]") == {
        "clock_mhz": 1980.0,
        "temperature_c": 34.0,
    }
    assert parse_reading("") == {}


def test_a_cpu_has_no_readings() -> None:
    assert read_device(torch.device("cpu")) == {}
