#!/bin/bash -l
#SBATCH --job-name=pretrain-7b
#SBATCH --nodes=3
#SBATCH --nodelist=n[3,11-12]
#SBATCH --exclusive
#SBATCH --gres=gpu:h100:2
#SBATCH --partition=train
#SBATCH --time=24:00:00
#SBATCH --comment="two words"
set -e
module load cuda/12
export MODE=quick
# Slurm takes --nodelist as a set and numbers tasks by name; the host file numbers them in this order instead.
SLURM_HOSTFILE=$(mktemp)
export SLURM_HOSTFILE
trap 'rm -f "$SLURM_HOSTFILE"' EXIT
printf '%s\n' \
    n12 \
    n3 \
    n11 > "$SLURM_HOSTFILE"
master_addr=$(head -n 1 "$SLURM_HOSTFILE")
prepare=$(cat <<'END_OF_PREPARE'
set -e
export NCCL_IB_HCA=mlx5
export NOTE='it'"'"'s $HOME'
ulimit -n 64
echo ready >&2
exec "$@"
END_OF_PREPARE
)
srun -n 3 --distribution=arbitrary --kill-on-bad-exit=1 --cpu-bind=none --mpi=none \
    sh -c 'prepare=$1; shift; master_addr=$1; shift; exec apptainer exec --bind=/scratch:/scratch --bind=/data:/data:ro --pwd=/job --nv image.sif sh -c "$prepare" sh torchrun --nnodes=3 --nproc-per-node=2 --master-port=29500 --node-rank="$SLURM_PROCID" --master-addr="$master_addr" "$@"' \
    torchrun "$prepare" "$master_addr" train.py --lr 0.1
