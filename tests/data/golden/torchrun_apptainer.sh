#!/bin/sh
# Run this on every node of the job; each finds its node rank by its short host name.
set -eu
host=$(uname -n)
host=${host%%.*}
case $host in
    n12) node_rank=0 ;;
    n3) node_rank=1 ;;
    n11) node_rank=2 ;;
    *) printf '%s\n' "host $host is not in the table of this launch script; it must not start" >&2; exit 2 ;;
esac
prepare=$(cat <<'END_OF_PREPARE'
set -e
export NCCL_IB_HCA=mlx5
export NOTE='it'"'"'s $HOME'
ulimit -n 64
echo ready >&2
exec "$@"
END_OF_PREPARE
)
exec apptainer exec --bind=/scratch:/scratch --bind=/data:/data:ro --pwd=/job --nv image.sif sh -c "$prepare" sh torchrun \
    --nnodes=3 --nproc-per-node=2 --master-port=29500 --node-rank="$node_rank" \
    --master-addr=n12 \
    train.py --lr 0.1
