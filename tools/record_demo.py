"""Turn the run of the last `make demo` into the recorded campaign that ships with spanfit, labelled as recorded."""

import sys
from dataclasses import replace
from pathlib import Path

from spanfit.results.schema import Measurement, Status
from spanfit.results.store import Store

TARGET = Path(__file__).parents[1] / "spanfit" / "cli" / "demo_data"


def main() -> None:
    """Write TARGET/recorded-demo.parquet from the newest run of a store (out/demo/runs unless given)."""
    store = Store(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo/runs"))
    info, frame = store.read(store.resolve("latest"))
    rows = [
        Measurement(**{**row, "run_id": "recorded-demo", "status": Status(str(row["status"]))})
        for row in ({str(key): value for key, value in record.items()} for record in frame.to_dict("records"))
    ]
    recorded = replace(info, run_id="recorded-demo", transport=f"a recorded campaign, made on {info.transport}")
    (TARGET / "recorded-demo.parquet").unlink(missing_ok=True)
    print(Store(TARGET).write(recorded, rows))


if __name__ == "__main__":
    main()
