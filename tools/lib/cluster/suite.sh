#!/usr/bin/env bash
# suite.sh BIN: what tools/test --cluster runs, in namespaces of its own. BIN holds what was built.
#
# One binary under every launcher: `digits` trains on two hosts with two ranks each (on one host where a launcher knows no other), and
# every rank says what its parameters hash to. On two hosts that is one number, whoever started the ranks.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) bin=$1
source "$here/hosts.sh"
source "$here/slurm.sh"
passed=0 failed=0
# What the network costs is told, not measured, so that every job chooses the same algorithms.
train=(env LOCKSTEP_TUNING="$here/network.json" "$bin/digits" --epochs 3 --hidden 128 --print-hash)

# check NAME COMMAND...: runs it; its output is shown when it fails.
check() {
  local name=$1 log=$TMPDIR/check.log start=$SECONDS
  shift
  if (set -euo pipefail; "$@") >"$log" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)$(grep -h '^= ' "$log" | tail -n 1 | sed 's/^=/:/')"
    passed=$((passed + 1))
  else
    echo "FAILED  $name: $*"
    tail -n 40 "$log"
    failed=$((failed + 1))
  fi
}

# hashes_of FILE: what the ranks said, without the prefixes that launchers put before lines.
hashes_of() {
  grep -oE 'rank [0-9]+ of [0-9]+ on [^ ]+: parameters [0-9a-f]{16}' "$1" | sort -u
}

# within SECONDS COMMAND...: runs it, which may be one of the functions below, for so long at most.
within() {
  timeout "$1" bash -euo pipefail -c '"$@"' within "${@:2}" </dev/null
}

# trained RANKS HOSTS COMMAND...: it must end well within two minutes, with RANKS ranks on HOSTS hosts whose parameters are equal to the
# last bit, and a network that has learnt.
trained() {
  local ranks=$1 hosts=$2 out hashes
  shift 2
  out=$(mktemp)
  within 120 "$@" >"$out" 2>&1 || { echo "ended with $?"; cat "$out"; return 1; }
  cat "$out"
  hashes=$(hashes_of "$out")
  expect "$ranks" ranks "$(cut -d' ' -f2 <<<"$hashes" | sort -u | wc -l)"
  expect "$ranks" "as the world's size" "$(cut -d' ' -f4 <<<"$hashes" | sort -u)"
  expect "$hosts" hosts "$(cut -d' ' -f6 <<<"$hashes" | sort -u | wc -l)"
  expect 1 "hash of the parameters" "$(cut -d' ' -f8 <<<"$hashes" | sort -u | wc -l)"
  grep -Eq 'digits: accuracy 0\.9[0-9]+, replicas equal' "$out"
  if ((ranks == 4 && hosts == 2)); then cut -d' ' -f8 <<<"$hashes" | sort -u >>"$TMPDIR/hashes-on-two-hosts"; fi
  echo "= $ranks rank(s) on $hosts host(s), parameters $(cut -d' ' -f8 <<<"$hashes" | head -n 1)"
}

# expect WANTED WHAT FOUND
expect() {
  [[ $1 == "$3" ]] || { echo "expected $1 $2, found $3"; return 1; }
}

# refused TEXT COMMAND...: it must fail within a minute, and say TEXT.
refused() {
  local text=$1 out
  shift
  out=$(mktemp)
  if within 60 "$@" >"$out" 2>&1; then cat "$out"; echo "was not refused"; return 1; fi
  cat "$out"
  grep -qF -- "$text" "$out" || { echo "did not say: $text"; return 1; }
}

# by_hand: four processes that were told everything.
by_hand() {
  local rank pids=() status=0
  for rank in 0 1 2 3; do
    on "node$((rank / 2))" env LOCKSTEP_RANK="$rank" LOCKSTEP_WORLD_SIZE=4 LOCKSTEP_RENDEZVOUS=tcp://node0:29501 "$@" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  return "$status"
}

# torchrun_on_both OPTION... COMMAND...: an agent on each host.
torchrun_on_both() {
  local node status=0 pids=()
  for node in 0 1; do
    on "node$node" torchrun --nnodes=2 --nproc_per_node=2 --node_rank=$node "$@" &
    pids+=($!)
  done
  for node in "${pids[@]}"; do wait "$node" || status=$?; done
  return "$status"
}

alone_and_lockstep_run() {
  check "alone" trained 1 1 "${train[@]}"
  check "lockstep-run" trained 4 1 "$bin/lockstep-run" -n 4 "${train[@]}"
  check "by hand, on two hosts" trained 4 2 by_hand "${train[@]}"
  check "as the pods of a PyTorchJob" trained 2 2 in_pods "${train[@]}"
}

slurm() {
  check "Slurm starts" start_slurm
  export SLURM_CONF=$TMPDIR/slurm/slurm.conf
  check "srun, on two nodes" trained 4 2 srun -N 2 --ntasks-per-node=2 "${train[@]}"
  check "srun, on one node" trained 2 1 srun -N 1 -n 2 "${train[@]}"
  check "srun, a script that starts the rank" trained 4 2 srun -N 2 --ntasks-per-node=2 sh -c '"$@"; exit' script "${train[@]}"
  check "srun whose PMI tells the numbers once more, to a script" \
    trained 4 2 srun --mpi=pmi2 -N 2 --ntasks-per-node=2 sh -c '"$@"; exit' script "${train[@]}"
  check "srun with a rank from elsewhere is refused" \
    refused "but Slurm says rank" srun -N 2 -n 4 env LOCKSTEP_RANK=0 LOCKSTEP_WORLD_SIZE=8 "${train[@]}"
  check "sbatch without srun is refused" refused "was not started by srun" sbatch_alone "${train[@]}"
}

# in_pods COMMAND...: what the training operator tells the pods of a PyTorchJob (see deploy/kubernetes), on two hosts. The master's name
# is known only when the pods run already.
in_pods() {
  local rank pids=() status=0
  for rank in 0 1; do
    on "node$rank" env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=digits-master-0 MASTER_PORT=29400 PET_NNODES=2 PET_NODE_RANK=$rank "$@" &
    pids+=($!)
  done
  sleep 1
  for rank in 0 1; do on "node$rank" sh -c "echo $network.10 digits-master-0 >>/etc/hosts"; done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  return "$status"
}

# sbatch_alone: a batch script of several tasks that forgot srun.
sbatch_alone() {
  local out=$TMPDIR/batch.out status=0
  printf '#!/bin/sh\nexec %s\n' "$*" >"$TMPDIR/batch.sh"
  sbatch --wait -N 2 -n 4 -o "$out" "$TMPDIR/batch.sh" || status=$?
  cat "$out"
  return $status
}

open_mpi() {
  local remote=$TMPDIR/remote-shell
  make_remote_shell "$remote"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  local mpirun=(mpirun.openmpi --mca plm_rsh_agent "$remote" --mca plm rsh --mca oob_tcp_if_include "$network.0/24" --host "node0:2,node1:2")
  check "Open MPI's mpirun, on one host" trained 4 1 on node0 mpirun.openmpi --oversubscribe -n 4 "${train[@]}"
  check "Open MPI's mpirun, on two hosts" \
    trained 4 2 "${mpirun[@]}" -x LOCKSTEP_SECRET_FILE -x LOCKSTEP_RENDEZVOUS=tcp://node0:29502 "${train[@]}"
  check "Open MPI's mpirun without a rendezvous asks for one" \
    refused "set LOCKSTEP_RENDEZVOUS=tcp://HOST:PORT" "${mpirun[@]}" -x LOCKSTEP_SECRET_FILE "${train[@]}"
  # Within a Slurm job mpirun has Slurm start its daemons, whose numbers are not the ranks'.
  check "Open MPI's mpirun within a Slurm job" trained 4 2 salloc -N 2 --ntasks-per-node=2 mpirun.openmpi --mca oob_tcp_if_include "$network.0/24" \
    -x LOCKSTEP_SECRET_FILE -x LOCKSTEP_RENDEZVOUS=tcp://node0:29510 "${train[@]}"
}

mpich() {
  local remote=$TMPDIR/remote-shell
  local mpirun=(mpirun.mpich -launcher ssh -launcher-exec "$remote" -hosts "node0,node1" -ppn 2 -n 4)
  check "MPICH's mpirun, on one host" trained 4 1 on node0 mpirun.mpich -n 4 "${train[@]}"
  check "MPICH's mpirun, on two hosts" \
    trained 4 2 "${mpirun[@]}" -env LOCKSTEP_RENDEZVOUS tcp://node0:29503 "${train[@]}"
}

torchrun_agents() {
  export OMP_NUM_THREADS=1
  # With Python 3.11 the torchrun of PyTorch 1.13, which Debian 12 has, ends unless it redirects exactly one stream.
  local command=(--redirects=1 --tee=1 --log_dir="$TMPDIR/torchrun" --no_python "${train[@]}")
  check "torchrun, on one host" trained 2 1 on node0 torchrun --standalone --nproc_per_node=2 "${command[@]}"
  check "torchrun, on two hosts" \
    trained 4 2 torchrun_on_both --master_addr=node0 --master_port=29504 "${command[@]}"
  check "torchrun's c10d rendezvous, on two hosts" \
    trained 4 2 torchrun_on_both --rdzv_backend=c10d --rdzv_endpoint=node0:29506 --rdzv_id=digits "${command[@]}"
  check "torchrun's agents as tasks of srun" trained 4 2 srun -N 2 -n 2 torchrun --nnodes=2 --nproc_per_node=2 \
    --rdzv_backend=c10d --rdzv_endpoint=node0:29508 --rdzv_id=nested "${command[@]}"
  check "torchrun's agents as tasks of srun, which tells them their numbers by PMI" trained 4 2 srun --mpi=pmi2 -N 2 -n 2 \
    torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=node0:29512 --rdzv_id=pmi "${command[@]}"
}

# misspelt_manifests: each change to the manifest must be found.
misspelt_manifests() {
  local changed=$TMPDIR/manifest.yaml edit
  for edit in 's/containerPort/containerport/' 's/replicas: 1$/replicas: "1"/' 's/name: pytorch  /name: torch  /' \
    's/cleanPodPolicy/cleanPodsPolicy/' 's/weight: 100/wait: 1/' 's/kind: PyTorchJob/kind: MPIJob/' '/containers:/d'; do
    sed "$edit" "$here/../../../deploy/kubernetes/digits.yaml" >"$changed"
    if "${manifest_check[@]}" "$changed"; then echo "$edit was not found"; return 1; fi
  done
}

kubernetes_manifest() {
  # Debian's Python, whose python3-yaml is installed.
  local manifest_check=(/usr/bin/python3 "$here/check_manifest.py")
  check "the Kubernetes manifest has the fields that a PyTorchJob has" "${manifest_check[@]}" "$here/../../../deploy/kubernetes/digits.yaml"
  check "a misspelt manifest is refused" misspelt_manifests
}

one_hash() {
  sort "$TMPDIR/hashes-on-two-hosts" | uniq -c
  expect 1 "hash under all launchers" "$(sort -u "$TMPDIR/hashes-on-two-hosts" | wc -l)"
}

export -f on by_hand in_pods torchrun_on_both sbatch_alone
make_head
make_host node0
make_host node1
(umask 077 && head -c 32 /dev/urandom | base64 >"$TMPDIR/secret")
export LOCKSTEP_SECRET_FILE=$TMPDIR/secret
alone_and_lockstep_run
slurm
open_mpi
mpich
torchrun_agents
kubernetes_manifest
check "the same bits on two hosts, whoever started them" one_hash
echo "cluster: $passed passed, $failed failed"
((failed == 0))
