# slurm.sh: sourced by suite.sh. A Slurm of two nodes: munge and slurmctld on the head, a slurmd on each host.
# shellcheck shell=bash disable=SC2154  # network: of hosts.sh

# write_slurm_configuration FOLDER
write_slurm_configuration() {
  cat >"$1/slurm.conf" <<END
ClusterName=lockstep
SlurmctldHost=head($network.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge.socket
CredType=cred/munge
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool-%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd-%n.log
# Without cgroups: they are the real machine's.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=node0 NodeAddr=$network.10 CPUs=4
NodeName=node1 NodeAddr=$network.11 CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  # slurmd wants the file, though nothing in it is needed.
  echo "CgroupAutomount=no" >"$1/cgroup.conf"
}

# start_slurm: returns when both nodes are idle.
start_slurm() {
  local folder=$TMPDIR/slurm node
  mkdir -p "$folder/state" "$folder/spool-node0" "$folder/spool-node1"
  write_slurm_configuration "$folder"
  export SLURM_CONF=$folder/slurm.conf
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  # --force: a temporary folder is not as closed as munge likes its own.
  munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" --pid-file="$folder/munged.pid" \
    --seed-file="$folder/munged.seed" --log-file="$folder/munged.log" 2>"$folder/munged.err"
  slurmctld
  for node in node0 node1; do on $node slurmd -N $node; done
  for ((tries = 0; tries < 150; ++tries)); do
    [[ $(sinfo --noheader --Node --format=%t 2>/dev/null | sort | uniq -c | xargs) == "2 idle" ]] && return
    sleep 0.2
  done
  tail -n 20 "$folder"/*.log "$folder/munged.err" >&2
  return 1
}
