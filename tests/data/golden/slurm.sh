#!/bin/sh
#SBATCH --job-name=pretrain-7b
#SBATCH --nodes=3
#SBATCH --nodelist=n[3,11-12]
#SBATCH --exclusive
set -e
# Slurm takes --nodelist as a set and numbers tasks by name; the host file numbers them in this order instead.
SLURM_HOSTFILE=$(mktemp)
export SLURM_HOSTFILE
trap 'rm -f "$SLURM_HOSTFILE"' EXIT
printf '%s\n' \
    n12 \
    n3 \
    n11 > "$SLURM_HOSTFILE"
master_addr=$(head -n 1 "$SLURM_HOSTFILE")
srun -n 3 --distribution=arbitrary --kill-on-bad-exit=1 --cpu-bind=none \
    sh -c 'master_addr=$1; shift; exec torchrun --nnodes=3 --nproc-per-node=2 --master-port=29500 --node-rank="$SLURM_PROCID" --master-addr="$master_addr" "$@"' \
    torchrun "$master_addr" train.py --lr 0.1
