"""A folder with fake programs first on PATH, and what they were called with."""

import os
import subprocess
from pathlib import Path

# Each fake writes its arguments, NUL after each, and then does what a test needs of the real program.
RECORD = '#!/bin/sh\nprintf "%s\\0" "$@" >> "$RECORDS/{name}.$SLURM_PROCID"\n'
UNTIL = 'while [ "$1" != {word} ]; do shift; done\n'
FAKES = {
    "torchrun": RECORD.format(name="torchrun") + 'env > "$RECORDS/environment.$SLURM_PROCID"\n',
    "uname": '#!/bin/sh\nprintf "%s\\n" "$FAKE_HOST"\n',
    "srun": RECORD.format(name="srun")
    + 'cp "$SLURM_HOSTFILE" "$RECORDS/hostfile"\n'
    + UNTIL.format(word="sh")
    + 'SLURM_PROCID=0 "$@"\nSLURM_PROCID=1 "$@"\n',
    "apptainer": RECORD.format(name="apptainer") + UNTIL.format(word="image.sif") + 'shift\nexec "$@"\n',
    "enroot": RECORD.format(name="enroot") + UNTIL.format(word="/images/train.sqsh") + 'shift\nexec "$@"\n',
    "kubectl": RECORD.format(name="kubectl") + 'case "$*" in *"get pods"*) cat "$RECORDS/pods"; : > "$RECORDS/pods" ;; '
    '*"get "*) cat "$RECORDS/job" ;; *) exit "${FAKE_PATCH:-0}" ;; esac\n',
    "sleep": "#!/bin/sh\n",
}

HOSTILE_COMMAND = (
    "tr ain.py",
    "$(touch owned)",
    "$(NAME)",
    "$$",
    "`touch owned`",
    "'",
    '"',
    "a\nb",
    ";touch owned",
    "*",
    "",
    "\\",
    "-x",
    "é: {}",
)
HOSTILE_NAMES = (
    "$(touch owned)",
    "`touch owned`",
    "a'b",
    'a"b',
    "a;touch owned",
    "a b",
    "*",
    "a) touch owned ;;",
    "-n",
    "é",
)


class Stage:
    """Runs scripts among the fakes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FAKES.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def run(self, script: str, host: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "FAKE_HOST": host,
            "RECORDS": str(self.folder),
            "TMPDIR": str(self.folder),
            "SLURM_PROCID": "0",
            **variables,
        }
        return subprocess.run(
            ["sh", "-c", script],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )

    def arguments(self, program: str, process: int = 0) -> list[str]:
        return (self.folder / f"{program}.{process}").read_text().split("\0")[:-1]

    def environment(self, process: int = 0) -> dict[str, str]:
        lines = (self.folder / f"environment.{process}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def calm(self) -> bool:
        """Return whether nothing that was smuggled into a name or an argument has run."""
        return not (self.folder / "owned").exists()


def parses(script: str) -> bool:
    """Return whether sh takes a text as a script, running nothing of it."""
    return subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False).returncode == 0
