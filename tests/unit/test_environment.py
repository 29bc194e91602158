from spanfit.environment import kept_environment


def test_only_what_explains_a_measurement_is_kept_and_no_secret() -> None:
    kept = {
        "NCCL_ALGO": "Ring",
        "NCCL_DEBUG": "INFO",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "UCX_TLS": "tcp",
        "FI_PROVIDER": "efa",
        "OMPI_MCA_pml": "ob1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    dropped = {
        "PATH": "/bin",
        "OMPI_MCA_initial_wdir": "/home",
        "HOME": "/home",
        "AWS_SECRET_ACCESS_KEY": "s",
        "CUDA_HOME": "/usr/local/cuda",
        "MY_NCCL_ALGO": "x",
        "TORCH_HOME": "x",
        "NCCL_TOKEN": "s",
        "NCCL_MY_PASSWORD": "s",
        "UCX_SECRET": "s",
        "FI_API_KEY": "s",
        "NCCL_my_token": "s",
    }
    assert kept_environment(kept | dropped) == kept
    assert list(kept_environment(kept | dropped)) == sorted(kept)
