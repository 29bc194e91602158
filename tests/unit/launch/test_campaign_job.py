import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from spanfit.launch.profile import Container, KubernetesSettings, LaunchProfile, Mount, SlurmSettings
from spanfit.launch.queued import QueuedJob, parse_job_of_kubernetes, parse_squeue
from spanfit.launch.render.campaign import KEY_SECRET, CampaignJob, render_campaign_pods, render_campaign_slurm
from tests.unit.launch.kubernetes_schemas import check_core

JOB = CampaignJob(
    name="spanfit-a",
    node_names=("n10", "n9"),
    ranks_per_node=8,
    command=("spanfit", "campaign", "run", "/data/it's.toml", "--store", "/data/runs"),
    folder="/data/runs/a",
)
SITE = LaunchProfile(
    container=Container(image="site/spanfit:1", mounts=(Mount(target="/data", claim="data"),)),
    kubernetes=KubernetesSettings(host_network=True),
)


def test_the_script_names_its_nodes_and_hands_the_shell_over() -> None:
    site = LaunchProfile(
        slurm=SlurmSettings(options=("--partition=batch",), gres="gpu", commands=("module load cuda",))
    )
    assert render_campaign_slurm(replace(JOB, time_limit_s=61), site) == (
        "#!/bin/sh\n"
        "#SBATCH --job-name=spanfit-a\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --nodelist=n[9-10]\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --chdir=/data/runs/a\n"
        "#SBATCH --output=/data/runs/a/slurm-%j.out\n"
        "#SBATCH --signal=B:INT@60\n"
        "#SBATCH --time=2\n"
        "#SBATCH --gres=gpu:8\n"
        "#SBATCH --partition=batch\n"
        "set -e\n"
        "module load cuda\n"
        """exec spanfit campaign run '/data/it'"'"'s.toml' --store /data/runs\n"""
    )


def test_the_command_reaches_the_shell_as_it_is() -> None:
    hostile = ("$(id)", "a b", "'\"", "x\ny")
    text = render_campaign_slurm(replace(JOB, command=("printf", "%s|", *hostile)), LaunchProfile())
    said = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True).stdout
    assert said == "".join(f"{part}|" for part in hostile)


@pytest.mark.parametrize("bad", ["a b", 'a"b', "a'b", "a\nb", "a%jb", "a#b", "a\\b"])
def test_what_a_line_of_sbatch_cannot_carry_is_refused(bad: str) -> None:
    for job in (replace(JOB, name=bad), replace(JOB, node_names=(bad,)), replace(JOB, folder=bad)):
        with pytest.raises(ValueError, match=r"cannot carry|job name is"):
            render_campaign_slurm(job, LaunchProfile())


def test_a_container_is_refused_on_slurm() -> None:
    with pytest.raises(ValueError, match="container: found one, expected none"):
        render_campaign_slurm(JOB, SITE)


def manifest(job: CampaignJob = JOB, site: LaunchProfile = SITE) -> dict[str, Any]:
    (document,) = yaml.safe_load_all(render_campaign_pods(job, site))
    return dict(document)


def test_a_pod_sits_on_each_node_and_the_job_ends_with_the_first() -> None:
    spec = manifest(replace(JOB, time_limit_s=60.5))["spec"]
    assert (spec["completions"], spec["parallelism"], spec["activeDeadlineSeconds"]) == (2, 2, 60)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    pod = spec["template"]
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchFields"][0]["values"] for term in terms["nodeSelectorTerms"]] == [["n10"], ["n9"]]
    (apart,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (main,) = pod["spec"]["containers"]
    mounted = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in main["volumeMounts"]} <= mounted
    assert {"secretName": KEY_SECRET} in [volume.get("secret") for volume in pod["spec"]["volumes"]]


def test_the_manifest_is_one_that_the_official_client_knows() -> None:
    check_core(manifest(), "V1Job")


def test_the_script_of_a_pod_is_one_and_keeps_its_words() -> None:
    command = manifest()["spec"]["template"]["spec"]["containers"][0]["command"]
    script, name, hosts, *words = [word.replace("$$", "$") for word in command[2:]]
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert (name, hosts, tuple(words)) == ("sh", "n10 n9", JOB.command)


def test_what_pods_cannot_do_is_refused_all_at_once() -> None:
    with pytest.raises(ValueError, match="job name is") as caught:
        render_campaign_pods(replace(JOB, name="A_b"), LaunchProfile())
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()[1:]] == [
        "container.image",
        "kubernetes.host_network",
    ]
    elsewhere = replace(SITE, container=Container(image="a", mounts=(Mount(target="/other", claim="data"),)))
    with pytest.raises(ValueError, match=r"none holds /data/it's.toml") as caught:
        render_campaign_pods(JOB, elsewhere)
    assert len(str(caught.value).splitlines()) == 2
    with pytest.raises(ValueError, match="Kubernetes cannot carry the host name"):
        render_campaign_pods(replace(JOB, node_names=("$(id)",)), SITE)


def test_squeue_is_read_and_said_in_words() -> None:
    waiting, running = parse_squeue("12|PENDING|Resources|N/A\n13|RUNNING|None|2026-12-01T10:00:00\nnoise\n")
    assert waiting == QueuedJob(job_id="12", state="pending", reason="Resources")
    assert waiting.words() == "job 12 is pending (Resources)"
    assert running.words() == "job 13 is running, started 2026-12-01T10:00:00"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, QueuedJob(job_id="a", state="pending")),
        ({"ready": 2, "startTime": "t"}, QueuedJob(job_id="a", state="running", start="t")),
        (
            {"conditions": [{"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True"}]},
            QueuedJob(job_id="a", state="failed", has_ended=True),
        ),
        (
            {"conditions": [{"type": "Complete", "status": "True"}]},
            QueuedJob(job_id="a", state="complete", has_ended=True),
        ),
    ],
)
def test_a_job_of_kubernetes_is_read(status: dict[str, Any], expected: QueuedJob) -> None:
    assert parse_job_of_kubernetes(json.dumps({"metadata": {"name": "a"}, "status": status})) == expected


def test_no_job_of_kubernetes_is_none_and_other_text_is_refused() -> None:
    assert parse_job_of_kubernetes("\n") is None
    for text in ("{", "[]", '{"metadata": {}}', '{"metadata": {"name": "a"}, "status": {"conditions": [{}]}}'):
        with pytest.raises(ValueError, match="printed no job"):
            parse_job_of_kubernetes(text)
