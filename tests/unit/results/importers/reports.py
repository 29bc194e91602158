"""Reports of ``-J`` by the rules of nccl-tests' util.cu: what each version prints, whole or ended early."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run of a program and what it finds; a time of None is a half that was never written."""

    program: str = "all_reduce_perf"
    json_version: int = 3
    hosts: Sequence[str] = ("n0", "n0", "n1", "n1")
    ngpus: int = 1
    sizes: Sequence[int] = (1 << 20, 1 << 22)
    time_us: float = 100.0
    nwrong: str = "0.000000"
    time_key: str = "time"
    out_of_bounds: int = 0
    okay: str = "unchecked"
    environment: Sequence[str] = ()
    nccl_version: int = 22807
    groups: Sequence[int] = ()

    @property
    def _factor(self) -> float:
        nranks = len(self.hosts) * self.ngpus // len(set(self.groups) or {0})
        return 2 * (nranks - 1) / nranks

    def render(self, *, per_iteration: bool = False) -> str:
        """Return the document of a run that came to its end."""
        mean = sum(size / self.time_us / 1e3 * self._factor for size in self.sizes) / max(1, len(self.sizes))
        average = ("average_bus_bandwidith", "bandwidith") if self.json_version == 1 else _SPELT
        return (
            f"{self.head()}{','.join(self.result(size, per_iteration=per_iteration) for size in self.sizes)}],"
            f'"out_of_bounds":{{"count":{self.out_of_bounds},"okay":"{str(not self.out_of_bounds).lower()}"}},'
            f'"{average[0]}":{{"{average[1]}":{mean:f},"okay":"{self.okay}"}},'
            '"errors":[""],"end_time":"2026-01-02 03:04:09"}'
        )

    def head(self) -> str:
        """Return the document up to its results."""
        devices = ",".join(
            f'{{"rank":{index * self.ngpus},"group":{self.groups[index] if self.groups else 0},"pid":{100 + index},'
            f'"hostname":"{host}","device":0,"device_hex":"0000:18:00","device_info":"NVIDIA H100 80GB HBM3"}}'
            for index, host in enumerate(self.hosts)
        )
        environment = ",".join(f'"{line}"' for line in self.environment)
        return (
            f'{{"version":{self.json_version},"start_time":"2026-01-02 03:04:05",'
            f'"args":[".\\/build\\/{self.program}","-b","1M"],"env":[{environment}],"nccl_version":{self.nccl_version},'
            f'"config":{{"nthreads":1,"ngpus":{self.ngpus},"minimum_bytes":1048576,"maximum_bytes":4194304,'
            '"step_factor":4,"warmup_iters":1,"iterations":20,"aggregated_iterations":1,"validation":1,"graph":0,'
            f'"blocking_collectives":"false","parallel_init":"false","devices":[{devices}]}},"results":['
        )

    def result(self, size_bytes: int, *, per_iteration: bool = False) -> str:
        """Return a row."""
        spread = (
            '{"skipped_iterations":0,"min_us":90.000000,"max_us":120.000000,"avg_us":100.000000,"p50_us":99.000000,'
            '"p95_us":110.000000,"p99_us":119.000000,"stdev_us":5.000000,"cv_pct":5.000000,"times_us":[90.0,120.0]}'
        )
        halves = [
            f'"{place}":{self.half(size_bytes)}' + (f',"{place}_per_iter":{spread}' if per_iteration else "")
            for place in ("out_of_place", "in_place")
        ]
        return f'{self.cells(size_bytes)},{",".join(halves)},"actual_iterations":20,"experiment_name":""}}'

    def cells(self, size_bytes: int) -> str:
        """Return the leading cells of a row, without their end."""
        return f'{{"size":{size_bytes},"count":{size_bytes // 4},"type":"float","redop":"sum","root":"    -1"'

    def half(self, size_bytes: int) -> str:
        """Return one half of a row."""
        algbw = size_bytes / self.time_us / 1e3
        rates = f'"alg_bw":{algbw:f},"bus_bw":{algbw * self._factor:f}'
        return f'{{"{self.time_key}":{self.time_us:f},{rates},"nwrong":{self.nwrong}}}'


_SPELT = ("average_bus_bandwidth", "bandwidth")

REPORT = Report()
