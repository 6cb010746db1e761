#!/bin/sh
# torchrun as one worker of an Indexed Job, of a JobSet or a TrainJob: index 0 hosts the rendezvous, the others find it.
#   NODES    how many workers may take part: 1:8 (elastic), 4 (rigid)
#   LEADER   the name of index 0's pod, from its headless Service
# --max_restarts counts changes of size that a worker notices by itself, too: not few.
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  leader=localhost host=1 # its own name may not be in the DNS yet
else
  leader=$LEADER host=0
fi
exec torchrun --nnodes="$NODES" --nproc_per_node="${PROCESSES:-1}" --max_restarts=1000 --monitor_interval=1 \
  --rdzv_backend=c10d --rdzv_id=training --rdzv_endpoint="$leader:${PORT:-29400}" \
  --rdzv_conf="is_host=$host,last_call_timeout=5,read_timeout=300" "${@:-train.py}"
