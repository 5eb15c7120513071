#!/usr/bin/env bash
# rdma_suite.sh PART BIN: what tools/test --rdma runs inside the virtual machine. BIN holds the built tests.
#   one   one device: every collective, killed ranks, exhausted locked memory
#   two   two devices over a bridge: every collective, a killed rank, and operations while one packet in a hundred is lost
set -uo pipefail
part=$1 bin=$2
export GTEST_BRIEF=1 GTEST_COLOR=no
passed=0 failed=0

# check NAME COMMAND...: runs it; its output is shown when it fails. A skipped test is a failure: the device is here.
check() {
  local name=$1 log start=$SECONDS
  shift
  log=$(mktemp)
  if "$@" >"$log" 2>&1 && ! grep -q SKIPPED "$log"; then
    echo "ok      $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
  else
    echo "FAILED  $name: $*"
    tail -n 40 "$log"
    failed=$((failed + 1))
  fi
}

# UCX over reliable connections of the device; see docs/fabrics.md for each variable.
ucx=(env "UCX_TLS=rc,self" UCX_IB_GID_INDEX=0 UCX_RC_VERBS_RETRY_COUNT=6 UCX_RC_VERBS_TIMEOUT=1s LOCKSTEP_UCX_FAILURES=peer)

# every_collective WHERE: over verbs and over UCX.
every_collective() {
  local ranks
  for ranks in 2 3 4; do
    check "verbs: every collective $1, $ranks ranks" env TEST_RUN=verbs "$bin/matrix_test" --gtest_filter="*/$ranks"
  done
  for ranks in 2 4; do
    check "ucx: every collective $1, $ranks ranks" "${ucx[@]}" TEST_RUN=ucx "$bin/matrix_test" --gtest_filter="*LibrarysChoice/$ranks:*SideBySide/$ranks"
  done
}

# Memory may not be locked: one error, which says so, and no hang.
locked_memory_is_named() {
  local said
  said=$(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock bash -c "ulimit -l 64
    timeout 60 '$bin/lockstep-bench' all_reduce --ranks 2 --transport verbs -b 64K -e 64K" 2>&1) && return 1
  echo "$said"
  grep -q 'may lock 65536 bytes of memory: raise that' <<<"$said"
}

# 10,000 operations of two ranks on two devices; the bench compares every result.
lossy_all_reduce() {
  timeout 900 "$bin/lockstep-bench" all_reduce --ranks 2 --transport verbs -b 1K -e 1K -n 10000 --json "$1" && cat "$1" &&
    grep -q '"wrong": *0' "$1"
}

# between_hosts TRANSPORTS RANK_WITHOUT: three ranks on two "hosts"; says what carried their data. RANK_WITHOUT may not lock memory.
between_hosts() {
  local folder rank locked
  folder=$(mktemp -d)
  head -c 32 /dev/urandom | base64 >"$folder/secret"
  chmod 600 "$folder/secret"
  for rank in 2 1 0; do
    locked=()
    if [[ $rank == "$2" ]]; then locked=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=65536:65536); fi
    env LOCKSTEP_HOST_ID=$((rank / 2)) LOCKSTEP_IFNAME==lo LOCKSTEP_RANK=$rank LOCKSTEP_WORLD_SIZE=3 LOCKSTEP_RENDEZVOUS="file://$folder/store" \
      LOCKSTEP_SECRET_FILE="$folder/secret" "${locked[@]}" timeout 60 "$bin/lockstep-bench" all_reduce --transport "$1" -b 64K -e 64K -n 5 \
      >"$folder/$rank" 2>&1 &
  done
  wait
  cat "$folder/0"
  grep -q '^# Wrong elements: 0 OK' "$folder/0"
}
# carried WORD: by that and by shared memory, and by nothing else, as the row of a bench says.
carried() {
  grep -E '^ +65536' | grep -q " shm [0-9.KMG]*,* *$1 [0-9.KMG]*\$"
}
auto_takes_verbs() { between_hosts auto none | tee /dev/stderr | carried verbs; }
auto_takes_tcp() { between_hosts auto 1 | tee /dev/stderr | carried tcp; }
tcp_is_obeyed() { between_hosts shm+tcp none | tee /dev/stderr | carried tcp; }

case $part in
  one)
    check "verbs: pairs connect when they are first wanted" "$bin/verbs_transport_test"
    check "ucx: links, and the device puts" "${ucx[@]}" "$bin/ucx_transport_test"
    every_collective "on one device"
    check "verbs: a killed rank is named" "$bin/process_test" --gtest_filter='*AKilledRank*/verbs'
    check "ucx: a killed rank is named" "${ucx[@]}" "$bin/process_test" --gtest_filter='*AKilledRank*/ucx'
    check "verbs: exhausted locked memory is named" locked_memory_is_named
    check "auto: verbs between hosts, shared memory within" auto_takes_verbs
    check "auto: TCP where one rank may not lock memory" auto_takes_tcp
    check "shm+tcp: TCP though there is a device" tcp_is_obeyed
    check "auto: every collective, 2 hosts with 2 ranks" env TEST_RUN=hosts "$bin/matrix_test" --gtest_filter="*LibrarysChoice/hosts_0_0_1_1"
    ;;
  two)
    export LOCKSTEP_VERBS_DEVICE=rxe0,rxe1
    every_collective "over a bridge"
    check "verbs: a killed rank beyond the bridge is named" "$bin/process_test" --gtest_filter='*AKilledRank*/verbs'
    tc qdisc add dev eth0 root netem loss 1% || exit 1
    export LOCKSTEP_VERBS_TIMEOUT=13  # A lost packet is sent again after 34 ms; busy ranks answer later than that when there are more of them.
    check "verbs: 10,000 all_reduces with 1 % loss" lossy_all_reduce "$(mktemp)"
    ;;
esac
echo "$part: $passed passed, $failed failed"
((failed == 0))
